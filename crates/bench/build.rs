//! Compiles the IDL of the benchmarks, and generates interfaces with 1, 10, 100 and 1,000
//! operations for the benchmark `demux`.

use std::fmt::Write;
use std::path::PathBuf;

/// Numbers of operations of the generated interfaces; equal to `WIDTHS` in src/orb/wide.rs.
const WIDTHS: [usize; 4] = [1, 10, 100, 1000];

fn main() {
    corelane_idl::Builder::new().compile("idl/cubit.idl");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let idl = out.join("wide.idl");
    std::fs::write(&idl, wide_idl()).expect("OUT_DIR can be written to");
    corelane_idl::Builder::new().compile(&idl);
    std::fs::write(out.join("wide_servants.rs"), wide_servants()).expect("OUT_DIR can be written to");
    println!("cargo:rerun-if-changed=build.rs");
}

fn wide_idl() -> String {
    let mut text = String::from("#pragma prefix \"corelane\"\nmodule Wide {\n");
    for width in WIDTHS {
        let _ = writeln!(text, "interface Wide{width} {{");
        for number in 0..width {
            let _ = writeln!(text, "void op_{number:03}();");
        }
        text.push_str("};\n");
    }
    text.push_str("};\n");
    text
}

fn wide_servants() -> String {
    let mut text = String::new();
    for width in WIDTHS {
        let _ = writeln!(text, "impl Wide{width} for Blank {{");
        for number in 0..width {
            let _ = writeln!(text, "fn op_{number:03}(&self) -> Result<(), corelane::SystemException> {{ Ok(()) }}");
        }
        text.push_str("}\n");
    }
    text
}
