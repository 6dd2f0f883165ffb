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

# Writes what is generated: the REST API's description, the JSON Schema, the reference of options, and
# the schema of new databases.
gen:
    -cargo nextest run -p gantry -p gantry-store --lib --no-fail-fast the_committed
    if [ -e target/sqlite_schema.sql ]; then mv target/sqlite_schema.sql crates/store/migrations/; fi
    for file in openapi.json gantry.schema.json configuration.md; do if [ -e target/$file ]; then mv target/$file docs/$file; fi; done

# Counts the lines of product code: without tests, testkit, blank lines and comments.
lines:
    @find crates -name '*.rs' -not -path '*/tests/*' -not -name tests.rs -not -path 'crates/testkit/*' -print0 | xargs -0 awk 'FNR==1{skip=0;test=0} /^#\[cfg\(test\)\]$/{test=1;next} test&&/^#\[/{next} test{test=0;if(/^mod [a-z_]+ \{/)skip=1} skip||/^[ \t]*(\/\/|$)/{next} {n++} END{print n}' | awk '{s+=$1} END{print s}'

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
