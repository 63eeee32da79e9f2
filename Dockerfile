# SPDX-License-Identifier: Apache-2.0
# kvtool in an image of Debian 12: the first stage builds it, the second has the program,
# its models, its HDF5 plugin and the libraries that they need.
#
#     docker build -t kvtool .
#     docker run --rm -v "$PWD:/data" kvtool describe dump.npy
#     docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" kvtool relayout --to=hnd dump.npy hnd.npy
#
# A CI that runs shell scripts in the image asks for no entrypoint (GitLab: entrypoint: [""]).
FROM debian:12-slim AS build
WORKDIR /src
COPY . .
RUN scripts/deps.sh demo && apt-get install -y --no-install-recommends make
RUN make -j "$(nproc)" DEPS=: CUDA=0 HIP=0 CFLAGS=-O2 LDFLAGS=-s DESTDIR=/built install

FROM debian:12-slim
RUN apt-get update && \
	apt-get install -y --no-install-recommends libjansson4 libxxhash0 libzstd1 zlib1g && \
	rm -rf /var/lib/apt/lists/*
COPY --from=build /built/usr/local/bin/kvtool /usr/local/bin/
COPY --from=build /built/usr/local/share/kvtool /usr/local/share/kvtool
COPY --from=build /built/usr/local/lib/kvtool /usr/local/lib/kvtool
WORKDIR /data
USER 1000:1000
ENTRYPOINT ["kvtool"]
