# docker build -t cbm . && docker run --rm -v "$PWD:/work" cbm discover log.npz --out runs/mine
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /build/
RUN pip install --no-cache-dir -c /build/constraints.txt --index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml README.md LICENSE /build/
COPY src /build/src
RUN pip install --no-cache-dir -c /build/constraints.txt '/build[tables,hdf5,ros,mujoco]' && rm -rf /build
RUN useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["cbm"]
CMD ["--help"]
