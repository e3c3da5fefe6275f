# Lockstep with everything it needs: docker build -t lockstep . && docker run --rm lockstep --help
FROM debian:12-slim
WORKDIR /src
COPY tools/install_dependencies.sh tools/
RUN apt-get update && tools/install_dependencies.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make install PREFIX=/usr/local && rm -rf build && ldconfig
WORKDIR /data
ENTRYPOINT ["lockstep"]
CMD ["--help"]
