//! Generates Rust code from echo.idl.

fn main() {
    corelane_idl::Builder::new().compile("echo.idl");
}
