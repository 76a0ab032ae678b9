//! `cargo xtask dist`: builds the `corelane` command as one file that needs no library, and runs
//! it.
//!
//! The file is linked with musl if the compiler has its standard library, else statically with
//! glibc.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cross;
use crate::steps::{self, Outcome, Steps};

const FOLDER: &str = "target/dist";

pub(crate) fn run(steps: &mut Steps) {
    let architecture = std::env::consts::ARCH;
    let musl = format!("{architecture}-unknown-linux-musl");
    let has_musl = cross::is_installed(steps.root(), &musl).unwrap_or(false);
    let target = if has_musl {
        musl
    } else {
        steps.left_out("musl", &format!("`rustup target add {musl}` installs it; glibc is linked instead"));
        format!("{architecture}-unknown-linux-gnu")
    };
    let mut build = steps::cargo();
    build
        .args(["build", "--release", "--locked", "--package", "corelane-cli", "--bin", "corelane"])
        .args(["--target", &target, "--target-dir", FOLDER])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    if !steps.command(&format!("corelane for {target}"), &mut build) {
        return;
    }
    let program = steps.root().join(FOLDER).join("corelane");
    let built = steps.root().join(FOLDER).join(&target).join("release/corelane");
    steps.step("no library is needed", |_| {
        fs::copy(&built, &program).map_err(|error| format!("{}: {error}", built.display()))?;
        let file = fs::read(&program).map_err(|error| error.to_string())?;
        check_static(&file)?;
        Ok(format!("{FOLDER}/corelane has {} KiB", file.len() / 1024))
    });
    steps.step("the program runs", |_| {
        let version = steps::output(Command::new(&program).arg("version").env_clear())?;
        Ok(version.trim().to_owned())
    });
    steps.step("names are served", |_| serve_names(&program));
}

fn serve_names(program: &Path) -> Outcome {
    let mut serve = Command::new(program);
    serve.args(["naming", "serve", "--listen", "tcp:127.0.0.1:0"]).env_clear();
    let child = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let mut server = Running(child);
    let output = server.0.stdout.take().ok_or("the server has no output")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let reference = lines.map(|line| line.trim().to_owned()).find(|line| line.contains("IOR:"));
    let reference = reference.ok_or("the server printed no reference")?;
    let at = &reference[reference.find("IOR:").unwrap_or(0)..];
    let call = |words: &[&str]| steps::output(Command::new(program).args(words).args(["--at", at]).env_clear());
    call(&["naming", "new", "shop"])?;
    let listed = call(&["naming", "list"])?;
    if listed.contains("shop") { Ok(String::new()) } else { Err(format!("the name `shop` is not in\n{listed}")) }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the server has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check_static(file: &[u8]) -> Result<(), String> {
    const PT_DYNAMIC: u64 = 2;
    const PT_INTERP: u64 = 3;
    const DT_NEEDED: u64 = 1;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Err("the program is no ELF file of 64 bits".to_owned());
    }
    let damaged = || "the program's ELF headers are damaged".to_owned();
    let number = |at: u64, octets: usize| {
        let at = usize::try_from(at).ok()?;
        let bytes = file.get(at..at.checked_add(octets)?)?;
        Some(bytes.iter().rev().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    };
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let (Some(first), Some(size), Some(count)) = (first, size, count) else { return Err(damaged()) };
    for index in 0..count {
        let header = first.saturating_add(index * size);
        match number(header, 4).ok_or_else(damaged)? {
            PT_INTERP => return Err("the program needs an interpreter, so it is linked dynamically".to_owned()),
            PT_DYNAMIC => {
                let start = number(header.saturating_add(8), 8).ok_or_else(damaged)?;
                let length = number(header.saturating_add(32), 8).ok_or_else(damaged)?;
                for entry in 0..length / 16 {
                    let tag = number(start.saturating_add(entry * 16), 8).ok_or_else(damaged)?;
                    if tag == DT_NEEDED {
                        return Err("the program needs a library".to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = kind;
        file[72] = 120;
        file[96] = u8::try_from(content.len()).expect("short");
        file.extend_from_slice(content);
        file
    }

    #[test]
    fn program_with_interpreter_or_library_is_refused() {
        let needed = [[1, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0]].concat();
        let relative = [[7, 0, 0, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(check_static(&program(3, b"/lib/ld.so")).unwrap_err().contains("interpreter"));
        assert!(check_static(&program(2, &needed)).unwrap_err().contains("needs a library"));
        assert!(check_static(&program(2, &relative)).is_ok());
        assert!(check_static(&program(1, b"code")).is_ok());
        assert!(check_static(b"#!/bin/sh").is_err());
        assert!(check_static(&program(2, &needed)[..100]).unwrap_err().contains("damaged"));
    }

    #[test]
    fn tests_own_program_is_linked_dynamically() {
        let file = fs::read(std::env::current_exe().expect("a program")).expect("readable");
        assert_eq!(check_static(&file).is_err(), !cfg!(target_feature = "crt-static"));
    }
}
