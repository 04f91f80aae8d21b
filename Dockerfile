# SPDX-License-Identifier: Apache-2.0
# cclbench without a Python environment of one's own: docker build --tag cclbench . ; docs/install.md shows its use.
# To renew the digest: docker buildx imagetools inspect python:3.13-slim
FROM python:3.13-slim@sha256:6771159cd4fa5d9bba1258caf0b82e6b73458c694d178ad97c5e925c2d0e1a91 AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY cclbench cclbench
# The environment has no pip, and the tests of its packages, a seventh of its size, are left out.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/cclbench \
    && pip --python /opt/cclbench/bin/python install --no-cache-dir '.[history,mcp,remote]' \
    && find /opt/cclbench -type d -name tests -prune -exec rm -r {} +

FROM python:3.13-slim@sha256:6771159cd4fa5d9bba1258caf0b82e6b73458c694d178ad97c5e925c2d0e1a91
COPY --from=build /opt/cclbench /opt/cclbench
ENV PATH=/opt/cclbench/bin:$PATH HOME=/tmp
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["cclbench"]
