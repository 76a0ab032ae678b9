//! `cargo xtask cross`: checks the crates for 64-bit ARM, tests included. Nothing is linked or run,
//! so the check needs only the target's standard library.

use std::path::Path;
use std::process::Command;

use crate::steps::{self, Steps};

const TARGET: &str = "aarch64-unknown-linux-gnu";

const CRATES: [&str; 6] =
    ["corelane-sys", "corelane-sched", "corelane-wire", "corelane-net", "corelane", "corelane-idl"];

const NAME: &str = "crates for aarch64";

pub(crate) fn run(steps: &mut Steps) {
    if !steps.step("target aarch64", |root| if is_installed(root, TARGET)? { Ok(String::new()) } else { install(root) })
    {
        return;
    }
    check(steps);
}

pub(crate) fn where_installed(steps: &mut Steps) {
    if is_installed(steps.root(), TARGET).unwrap_or(false) {
        check(steps);
    } else {
        steps.left_out(
            NAME,
            &format!("the target is not installed: `cargo xtask cross`, or `rustup target add {TARGET}`"),
        );
    }
}

fn check(steps: &mut Steps) {
    let packages = CRATES.iter().flat_map(|package| ["-p", package]);
    let mut clippy = steps::cargo();
    clippy.args(["clippy", "--target", TARGET, "--all-targets", "--locked", "--quiet"]).args(packages);
    steps.command(NAME, clippy.args(["--", "-D", "warnings"]));
}

pub(crate) fn is_installed(root: &Path, target: &str) -> Result<bool, String> {
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--print", "target-libdir", "--target", target]).current_dir(root);
    let folder = steps::output(&mut compiler)?;
    Ok(has_standard_library(Path::new(folder.trim())))
}

fn has_standard_library(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

fn install(root: &Path) -> steps::Outcome {
    let mut rustup = Command::new("rustup");
    steps::status(rustup.args(["target", "add", TARGET]).current_dir(root)).map_err(|error| {
        format!("{error}\nthe standard library for {TARGET} is missing, and rustup did not install it")
    })?;
    if is_installed(root, TARGET)? {
        Ok("installed".to_owned())
    } else {
        Err("rustup succeeded, but the target is still missing".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_installed_if_its_standard_library_exists() {
        let folder = std::env::temp_dir().join(format!("corelane-cross-{}", std::process::id()));
        assert!(!has_standard_library(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(!has_standard_library(&folder));
        std::fs::write(folder.join("libstd-0123.rlib"), "").unwrap();
        assert!(has_standard_library(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(is_installed(Path::new("."), TARGET).is_ok());
    }
}
