"""Built-in worlds that know their true graph; importing this registers their Gymnasium ids.

`world` says what a world is, `contact` and `light` are two, `registry` makes them by name, `gym` puts the
Gymnasium interface around one, `collect` steps many copies to make data.
"""

from cbm.envs.registry import list_worlds, make_world, register_envs

__all__ = ["list_worlds", "make_world", "register_envs"]

register_envs()
