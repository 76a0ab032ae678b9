//! The size of a small server: the workspace's limits for this example's release program, its
//! memory, and its smallest form.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const KIB: u64 = 1024;
const MOST_PROGRAM: u64 = 2048 * KIB;
const MOST_RESIDENT: u64 = 5120 * KIB;

const MOST_MINIMAL: u64 = 700 * KIB;
/// Maximum difference in bytes between the smallest form, linked statically, and a networking
/// program without an ORB.
const MOST_ABOVE_BARE: u64 = 450 * KIB;

/// Builds the server as it would be shipped, and returns its path. The build has a separate folder,
/// so that other builds and their profiles have no influence.
fn shipped() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shipped");
    let mut build = Command::new(env!("CARGO"));
    build
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--package",
            env!("CARGO_PKG_NAME"),
            "--bin",
            "hello-server",
        ])
        .args(["--config", "profile.release.strip='symbols'", "--target-dir"])
        .arg(&folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "{build:?}");
    folder.join("release/hello-server")
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * KIB
}

#[test]
fn server_does_not_exceed_its_size_and_memory() {
    let program = shipped();
    let size = fs::metadata(&program).unwrap().len();
    assert!(size < MOST_PROGRAM, "{} KiB", size / KIB);

    let mut server = Running(Command::new(&program).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut reference = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut reference).unwrap();
    assert!(reference.starts_with("IOR:"), "{reference}");
    // A short wait lets the server finish its start, whose memory counts.
    std::thread::sleep(Duration::from_millis(200));
    let resident = resident(server.0.id());
    assert!(resident < MOST_RESIDENT, "{} KiB", resident / KIB);
    println!("program {} KiB, resident {} KiB", size / KIB, resident / KIB);
}

/// Returns the sizes in bytes of the server's smallest form and of the program without an ORB, both
/// built with `flags`. Build scripts and procedural macros are built once for all flags.
fn minimal(flags: &str) -> [u64; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("minimal");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--profile", "minimal", "--locked", "--quiet", "--package", env!("CARGO_PKG_NAME")])
        .args(["--no-default-features", "--bin", "hello-server", "--bin", "hello-bare", "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "{build:?}");
    let built = folder.join(target).join("minimal");
    ["hello-server", "hello-bare"].map(|program| fs::metadata(built.join(program)).unwrap().len())
}

fn check(what: &str, size: u64, most: u64) {
    let [size, most] = [size, most].map(|octets| octets.div_ceil(KIB));
    println!("{what}: {size} KiB, at most {most} KiB");
    assert!(size <= most, "{what}: {size} KiB, at most {most} KiB");
}

#[test]
fn smallest_server_does_not_exceed_its_size() {
    let [dynamic, _] = minimal("");
    check("the smallest server", dynamic, MOST_MINIMAL);
    let [server, bare] = minimal("-C target-feature=+crt-static");
    check("linked statically, above a program without an ORB", server - bare, MOST_ABOVE_BARE);
}
