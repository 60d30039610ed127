"""The two manipulation worlds, block and tool-use: a gripper, things to grasp, pull and stack, and their tasks.

`backend.py` is the seam to a physics engine: what a simulator must offer, and nothing else. `scene.py`
describes the things on the table and writes them as MJCF, `simulator.py` steps many copies of them in
MuJoCo. Everything else reads named physical quantities only and works with any backend: `layout.py`
(variables and normalisation), `world.py` (what both worlds share), `tasks.py` (rewards and success),
`legs.py`, `skills.py` and `scripts.py` (what the hand does), `graphs.py` (true graphs).
"""
