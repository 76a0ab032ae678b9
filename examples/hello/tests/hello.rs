//! Hello world is short, is what the README shows, and works.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const FILES: [(&str, &str, usize); 4] = [
    ("echo.idl", "idl", usize::MAX),
    ("build.rs", "rust", 5),
    ("src/server.rs", "rust", 25),
    ("src/client.rs", "rust", 15),
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn hello_world_fits_its_budget() {
    for (file, _, most) in FILES {
        let text = read(file);
        let counts = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = text.lines().filter(counts).count();
        assert!(lines <= most, "{file} has {lines} lines that are neither blank nor comment, the budget is {most}");
    }
}

#[test]
fn the_readme_shows_these_very_files() {
    let readme = read("../../README.md");
    for (file, language, _) in FILES {
        let shown = format!("`{file}`\n```{language}\n{}```\n", read(file));
        assert!(readme.contains(&shown), "README.md does not show examples/hello/{file} as it is:\n{shown}");
    }
}

/// Ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_client_hears_its_echo() {
    let mut server = Server(Command::new(env!("CARGO_BIN_EXE_hello-server")).stdout(Stdio::piped()).spawn().unwrap());
    let mut reference = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut reference).unwrap();
    assert!(reference.starts_with("IOR:"), "{reference}");
    let client = Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(reference.trim()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&client.stdout), "Hello, world!\n");
    assert_eq!(String::from_utf8_lossy(&client.stderr), "");
    assert!(client.status.success());
    assert!(resident(server.0.id()) < 5 << 10, "the server has {} KiB resident", resident(server.0.id()));
}

/// Resident memory of a process in KiB.
fn resident(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_client_without_a_server_says_why() {
    let client = |address: &str| Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(address).output().unwrap();
    let nobody = client("corbaloc::127.0.0.1:1/nobody");
    assert!(!nobody.status.success());
    let said = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(said.contains("TRANSIENT") && said.contains("127.0.0.1:1"), "{said}");
}
