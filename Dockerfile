# syntax=docker/dockerfile:1

# 1. Build a wheel and a virtual environment with exactly the locked dependencies.
FROM python:3.13-slim AS build
WORKDIR /src
RUN pip install --no-cache-dir "uv>=0.9"
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PROJECT_ENVIRONMENT=/opt/adjoin UV_PYTHON_DOWNLOADS=never
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --locked --no-dev --no-install-project
COPY operator ./operator
COPY allocator ./allocator
COPY crds ./crds
RUN uv sync --locked --no-dev --no-editable

# 2. Run it as nobody in particular, with nothing to write to.
FROM python:3.13-slim
LABEL org.opencontainers.image.title="adjoin" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/adjoin /opt/adjoin
ENV PATH=/opt/adjoin/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["adjoin"]
CMD ["run"]
