//! Generates Rust code from tank.idl.

fn main() {
    corelane_idl::Builder::new().compile("tank.idl");
}
