//! What the tests need of the machine: rustup components, and system packages for the peers.
//!
//! Packages are installed where that is allowed (root, with apt); elsewhere they are named and the run ends.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::steps::{self, Outcome};

/// Something that must be there, and the Debian package that brings it.
struct Need {
    package: &'static str,
    found: Found,
}

/// How to see that a package is there, whoever installed it.
enum Found {
    /// A program in the search path.
    Program(&'static str),
    /// A file.
    File(&'static str),
}

const NEEDS: &[Need] = &[
    Need { package: "g++", found: Found::Program("g++") },
    Need { package: "make", found: Found::Program("make") },
    Need { package: "omniorb", found: Found::Program("nameclt") },
    Need { package: "omniidl", found: Found::Program("omniidl") },
    Need { package: "omniorb-idl", found: Found::File("/usr/share/idl/omniORB/COS/CosNaming.idl") },
    Need { package: "omniorb-nameserver", found: Found::Program("omniNames") },
    Need { package: "libomniorb4-dev", found: Found::File("/usr/include/omniORB4/CORBA.h") },
    Need { package: "libzeroc-ice-dev", found: Found::File("/usr/include/Ice/Ice.h") },
    Need { package: "zeroc-ice-compilers", found: Found::Program("slice2cpp") },
    Need { package: "default-jdk-headless", found: Found::Program("javac") },
    Need { package: "maven", found: Found::Program("mvn") },
    Need { package: "tshark", found: Found::Program("tshark") },
    Need { package: "iproute2", found: Found::Program("ip") },
    Need { package: "strace", found: Found::Program("strace") },
];

/// The rustup components that the checks call, as (component, cargo subcommand).
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// Names every component that is missing and how to add it.
pub(crate) fn components(_root: &Path) -> Outcome {
    let missing: Vec<String> = COMPONENTS
        .iter()
        .filter(|(_, subcommand)| steps::output(steps::cargo().args([subcommand, "--version"])).is_err())
        .map(|(component, _)| {
            format!("the Rust component `{component}` is missing: `rustup component add {component}` brings it")
        })
        .collect();
    steps::findings(missing, String::new())
}

/// Installs the missing system packages, or names them.
pub(crate) fn packages(_root: &Path) -> Outcome {
    let missing = missing(NEEDS, &present);
    if missing.is_empty() {
        return Ok(format!("all {} are there", NEEDS.len()));
    }
    let list = missing.join(" ");
    if !is_root() || !in_path("apt-get") {
        return Err(format!(
            "these system packages (Debian's names) are missing, and only root can install them, with apt-get: {list}\n\
             install them (`sudo apt-get install {list}`), or run `cargo xtask test --quick`, which skips the peers"
        ));
    }
    println!("    installing {list}");
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    steps::status(apt().args(["update", "-qq"]))?;
    steps::status(
        apt().args(["install", "-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]).args(&missing),
    )?;
    let still = self::missing(NEEDS, &present);
    if still.is_empty() {
        Ok(format!("installed {list}"))
    } else {
        Err(format!("apt-get ended well, and yet these are missing: {}", still.join(" ")))
    }
}

fn missing(needs: &[Need], present: &dyn Fn(&Found) -> bool) -> Vec<&'static str> {
    needs.iter().filter(|need| !present(&need.found)).map(|need| need.package).collect()
}

fn present(found: &Found) -> bool {
    match found {
        Found::Program(name) => in_path(name),
        Found::File(path) => Path::new(path).exists(),
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let needs = [
            Need { package: "has-program", found: Found::Program("a") },
            Need { package: "lacks-program", found: Found::Program("b") },
            Need { package: "lacks-file", found: Found::File("/c") },
        ];
        let there = |found: &Found| matches!(found, Found::Program("a"));
        assert_eq!(missing(&needs, &there), ["lacks-program", "lacks-file"]);
    }

    #[test]
    fn the_search_path_is_searched() {
        assert!(in_path("sh"));
        assert!(!in_path("no-such-program-here"));
    }
}
