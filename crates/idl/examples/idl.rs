//! The IDL compiler as a command-line program.
fn main() -> std::process::ExitCode {
    corelane_idl::command::run(std::env::args_os().skip(1), &mut std::io::stderr()).into()
}
