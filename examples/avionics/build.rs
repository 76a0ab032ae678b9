//! Generates Rust code from avionics.idl.

fn main() {
    corelane_idl::Builder::new().compile("avionics.idl");
}
