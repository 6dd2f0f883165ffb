# A menu over the project's commands; nothing here is needed by `.ci/run`.

# Lists the commands.
default:
    @just --list

# Checks quickly: types and lints.
check:
    cargo clippy --workspace --all-targets -- -D warnings

# Runs all tests, or those that fit a filter.
test *filter:
    ./test {{filter}}

# Reviews changed snapshots.
review:
    cargo insta review

# Writes the generated description of the REST API anew.
gen:
    -cargo nextest run -p gantry --lib the_committed_document
    cp target/openapi.json docs/openapi.json

# Runs the gateway with the example server.
run *flags:
    cargo run --release -p gantry -- up {{flags}}

# Measures the gateway beside the least that an HTTP bridge can do.
bench *flags:
    bench/run {{flags}}

# Checks licences, sources and refused crates.
deny:
    cargo deny check bans licenses sources

# Everything that must pass.
ci:
    .ci/run
