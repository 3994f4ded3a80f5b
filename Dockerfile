# Two images, each static binaries on nothing: no shell, no root, nothing to write to
# but /var/lib/fenced.
#
#   docker build -t fenced .                              the server and fencectl
#   docker build -t fenced-rewards --target rewards .     the reward pipeline of the example
#
# BINARIES may name an image that has /out already, built somewhere else.
ARG BINARIES=build
ARG GO_IMAGE=golang:1.26

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/bin/ \
      ./cmd/fenced ./cmd/fencectl ./examples/rewards/rewardctl ./packaging/compose/keys && \
    cp examples/rewards/testdata/season-week-34.ndjson /out/ && \
    cp /etc/ssl/certs/ca-certificates.crt /out/ && mkdir -p /out/empty

FROM ${BINARIES} AS binaries

FROM scratch AS rewards
COPY --from=binaries /out/bin/rewardctl /out/bin/keys /usr/bin/
COPY --from=binaries /out/season-week-34.ndjson /
COPY --from=binaries --chown=65532:65532 /out/empty /etc/fenced
USER 65532:65532
ENTRYPOINT ["/usr/bin/rewardctl"]

FROM scratch AS fenced
COPY --from=binaries /out/bin/fenced /out/bin/fencectl /usr/bin/
COPY --from=binaries /out/ca-certificates.crt /etc/ssl/certs/
COPY --from=binaries --chown=65532:65532 /out/empty /etc/fenced
COPY --from=binaries --chown=65532:65532 /out/empty /var/lib/fenced
USER 65532:65532
ENV FENCED_DATA_DIR=/var/lib/fenced/data PATH=/usr/bin
VOLUME /var/lib/fenced
EXPOSE 7420 7421
# Compose waits for it. With TLS or another port give a check of your own (--addr), and
# where the unhealthy are restarted one of /healthz: a restart mends no lack of a quorum.
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/bin/fenced", "health"]
ENTRYPOINT ["/usr/bin/fenced"]
CMD ["serve"]
