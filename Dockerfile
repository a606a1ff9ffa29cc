# It runs as any user: give the owner of the datadir.
#   docker build --build-arg PEREGRINE_COMMIT="$(git rev-parse HEAD)" -t peregrine .
#   docker run --rm --user "$(id -u):$(id -g)" -v ~/.bitcoin:/data peregrine reindex --datadir /data
FROM debian:12 AS build
WORKDIR /source
COPY . .
ARG FEATURES
# The context has no .git from which the program could learn its commit.
ARG PEREGRINE_COMMIT
RUN ./.ci/setup
RUN make release

FROM debian:12-slim
COPY --from=build /source/target/dist/package /usr
# For `--hints` with an https URL.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 1000:1000
ENTRYPOINT ["peregrine"]
