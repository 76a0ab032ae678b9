//! Requirements of the tests on the machine: rustup components and system packages. Missing system
//! packages are installed if root runs the command, and otherwise printed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::steps::{self, Outcome};

struct Need {
    package: &'static str,
    found: Found,
}

enum Found {
    Program(&'static str),
    File(&'static str),
}

const NEEDS: &[Need] = &[
    Need { package: "g++", found: Found::Program("g++") },
    Need { package: "make", found: Found::Program("make") },
    Need { package: "omniorb", found: Found::Program("nameclt") },
    Need { package: "omniidl", found: Found::Program("omniidl") },
    Need { package: "omniorb-idl", found: Found::File("/usr/share/idl/omniORB/COS/CosNaming.idl") },
    Need { package: "omniorb-nameserver", found: Found::Program("omniNames") },
    Need { package: "omnievents", found: Found::Program("eventc") },
    Need { package: "libomniorb4-dev", found: Found::File("/usr/include/omniORB4/CORBA.h") },
    Need { package: "libzeroc-ice-dev", found: Found::File("/usr/include/Ice/Ice.h") },
    Need { package: "zeroc-ice-compilers", found: Found::Program("slice2cpp") },
    Need { package: "default-jdk-headless", found: Found::Program("javac") },
    Need { package: "maven", found: Found::Program("mvn") },
    Need { package: "tshark", found: Found::Program("tshark") },
    Need { package: "iproute2", found: Found::Program("ip") },
    Need { package: "strace", found: Found::Program("strace") },
    Need { package: "chromium", found: Found::Program("chromium") },
    Need { package: "chromium-driver", found: Found::Program("chromedriver") },
];

/// The needs of the tests with NATS, which only `cargo xtask interop --nats` runs.
const NATS: &[Need] = &[Need { package: "nats-server", found: Found::Program("nats-server") }];

const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

pub(crate) fn components(_root: &Path) -> Outcome {
    let missing: Vec<String> = COMPONENTS
        .iter()
        .filter(|(_, subcommand)| steps::output(steps::cargo().args([subcommand, "--version"])).is_err())
        .map(|(component, _)| {
            format!("the Rust component `{component}` is missing: `rustup component add {component}` installs it")
        })
        .collect();
    steps::findings(missing, String::new())
}

pub(crate) fn packages(_root: &Path) -> Outcome {
    install(NEEDS)
}

pub(crate) fn nats(_root: &Path) -> Outcome {
    install(NATS)
}

fn install(needs: &[Need]) -> Outcome {
    let missing = missing(needs, &present);
    if missing.is_empty() {
        return Ok(format!("all {} are installed", needs.len()));
    }
    let list = missing.join(" ");
    if !is_root() || !in_path("apt-get") {
        return Err(format!(
            "these system packages (Debian's names) are missing, and only root can install them, with apt-get: {list}\n\
             install them (`sudo apt-get install {list}`), or run `cargo xtask test --quick`, which skips the peers"
        ));
    }
    println!("    installing {list}");
    let update = || {
        let mut command = apt_get();
        command.args(["update", "-qq"]);
        command
    };
    let install = || {
        let mut command = apt_get();
        command.args(["install", "-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"]).args(&missing);
        command
    };
    let mut patience = LOCK_TIMEOUT.as_secs() / LOCK_PAUSE.as_secs();
    let mut pause = || {
        std::thread::sleep(LOCK_PAUSE);
        patience = patience.saturating_sub(1);
        patience > 0
    };
    when_unlocked(update, &mut pause)?;
    when_unlocked(install, &mut pause)?;
    let still = self::missing(needs, &present);
    if still.is_empty() {
        Ok(format!("installed {list}"))
    } else {
        Err(format!("apt-get succeeded, but these are still missing: {}", still.join(" ")))
    }
}

/// Maximum time to wait for other programs that use the package manager.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);
const LOCK_PAUSE: Duration = Duration::from_secs(2);

/// Returns a command that runs apt-get and waits for dpkg's lock. Its messages are in English, for
/// [`says_locked`].
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    command.args(["-o", &format!("DPkg::Lock::Timeout={}", LOCK_TIMEOUT.as_secs())]);
    command
}

/// Runs a command, and repeats it if another process has apt's lists or archives locked, because
/// apt does not wait for these locks. `pause` returns false when it has waited long enough.
fn when_unlocked(command: impl Fn() -> Command, pause: &mut impl FnMut() -> bool) -> Outcome {
    let mut is_told = false;
    loop {
        let mut command = command();
        let shown = steps::shown(&command);
        let ended = command.stdin(Stdio::null()).stdout(Stdio::inherit()).output();
        let output = ended.map_err(|error| format!("`{shown}` could not be started: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end();
        if output.status.success() {
            if !said.is_empty() {
                eprintln!("{said}");
            }
            return Ok(String::new());
        }
        let is_locked = says_locked(said);
        if is_locked && !is_told {
            println!("    waiting for the package manager's lock\n{said}");
            is_told = true;
        }
        if !is_locked || !pause() {
            return Err(format!("`{shown}` ended with {}\n{said}", output.status));
        }
    }
}

fn says_locked(said: &str) -> bool {
    said.contains("Could not get lock")
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
    fn only_missing_packages_are_named() {
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

    /// Message of apt 2.6 for a locked package list.
    const LOCKED: &str = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)
E: Unable to lock directory /var/lib/apt/lists/";

    /// Runs a command that fails `failures` times, with `patience` permitted repetitions. Returns
    /// the outcome and the number of runs.
    fn run(name: &str, failures: usize, message: &str, patience: usize) -> (Outcome, usize) {
        let runs = std::env::temp_dir().join(format!("corelane-xtask-{}-{name}", std::process::id()));
        let script = r#"echo >> "$1"; [ $(wc -l < "$1") -gt "$2" ] || { echo "$3" >&2; exit 100; }"#;
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).arg(&runs).args([&failures.to_string(), message]);
            command
        };
        let mut left = patience;
        let outcome = when_unlocked(command, &mut || {
            let again = left > 0;
            left = left.saturating_sub(1);
            again
        });
        let count = std::fs::read_to_string(&runs).unwrap().lines().count();
        std::fs::remove_file(runs).unwrap();
        (outcome, count)
    }

    #[test]
    fn a_lock_of_the_package_manager_is_waited_for() {
        let (outcome, runs) = run("free", 0, LOCKED, 10);
        assert_eq!((outcome, runs), (Ok(String::new()), 1));
        let (outcome, runs) = run("held", 3, LOCKED, 10);
        assert_eq!((outcome, runs), (Ok(String::new()), 4));
    }

    #[test]
    fn a_lock_that_stays_and_other_failures_end_the_wait() {
        let (outcome, runs) = run("stays", 100, LOCKED, 2);
        let reason = outcome.unwrap_err();
        assert!(reason.contains("process 4711") && reason.contains("exit status: 100"), "{reason}");
        assert_eq!(runs, 3);
        let (outcome, runs) = run("other", 100, "E: Unable to locate package omniorb", 10);
        assert!(outcome.unwrap_err().contains("Unable to locate"));
        assert_eq!(runs, 1);
    }

    #[test]
    fn apt_waits_for_dpkg_with_english_messages() {
        let command = apt_get();
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["-o", "DPkg::Lock::Timeout=600"]);
        assert!(command.get_envs().any(|(name, value)| name == "LC_ALL" && value == Some("C".as_ref())));
    }
}
