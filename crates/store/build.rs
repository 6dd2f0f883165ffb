//! Tells cargo that a new file among the migrations is a reason to build again.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
