// Package compose tests docker-compose.yml and the Dockerfile on a real engine; it has
// no code of its own. Command keys, below it, makes the deployment's API keys.
//
// Nothing is pulled: the project's images are made from binaries that were built here,
// and those of PostgreSQL and Prometheus from the files of the machine's own packages.
// So the final stages of the Dockerfile are tested and its stage "build" is not, and
// Grafana is not started. Run it by "make test-compose".
package compose
