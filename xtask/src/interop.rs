//! `cargo xtask interop`: runs the interoperability tests. With `--tao PREFIX`, the tests run
//! against the user's installation of TAO; with `--nats`, event channels are joined by NATS.

use std::path::Path;

use crate::metadata::Metadata;
use crate::steps::{self, Steps};
use crate::{host, licences};

pub(crate) const PACKAGE: &str = "corelane-interop";

/// Runs the interoperability tests. Returns false if the options are invalid.
pub(crate) fn run(steps: &mut Steps, options: &[&str]) -> bool {
    match *options {
        [] => {
            if steps.step("system packages", host::packages) {
                let all = ["test", "--package", PACKAGE, "--locked", "--no-fail-fast"];
                steps.command("interop", steps::cargo().args(all));
            }
        }
        ["--nats"] => {
            if steps.step("nats-server", host::nats) {
                let of_bridge = |words: &[&str]| {
                    let mut command = steps::cargo();
                    command.args(words).args(["--manifest-path", "bridges/nats/Cargo.toml"]);
                    command
                };
                steps.command("formatting of the bridge", of_bridge(&["fmt"]).arg("--check"));
                steps.step("licences of the bridge", |root| {
                    let metadata = Metadata::load(&root.join("bridges/nats"))?;
                    steps::findings(licences::check(&metadata), String::new())
                });
                let lints = ["clippy", "--locked", "--all-targets", "--target-dir", "target/nats"];
                steps.command("lints of the bridge", of_bridge(&lints).args(["--", "-D", "warnings"]));
                let tests = ["test", "--locked", "--target-dir", "target/nats"];
                steps.command("tests of the bridge", &mut of_bridge(&tests));
                let live = ["test", "--package", PACKAGE, "--locked", "--test", "events", "--", "--ignored", "nats"];
                // A filter that matches no test would pass.
                let is_there = steps.step("tests with NATS", |root| {
                    let list = steps::output(steps::cargo().args(live).arg("--list").current_dir(root))?;
                    let count = list.lines().filter(|line| line.ends_with(": test")).count();
                    if count == 0 { Err("there is none".to_owned()) } else { Ok(format!("{count} tests")) }
                });
                if is_there {
                    steps.command("channels joined by NATS", steps::cargo().args(live));
                }
            }
        }
        ["--tao", prefix] => {
            let prefix = Path::new(prefix);
            if steps.step("TAO", |_| is_tao(prefix)) {
                let live = ["test", "--package", PACKAGE, "--locked", "--test", "tao", "--", "--ignored"];
                steps.command("interop with TAO", steps::cargo().args(live).env("CORELANE_TAO", prefix));
            }
        }
        _ => return false,
    }
    true
}

fn is_tao(prefix: &Path) -> steps::Outcome {
    let needed = ["bin/tao_idl", "include/tao/RTPortableServer/RTPortableServer.h", "lib/libTAO_RTPortableServer.so"];
    let missing = needed.into_iter().filter(|name| !prefix.join(name).exists());
    let missing =
        missing.map(|name| format!("there is no {}: is that the prefix of TAO?", prefix.join(name).display()));
    let missing: Vec<String> = missing.collect();
    let relative = prefix.is_relative().then(|| format!("{} is not an absolute path", prefix.display()));
    steps::findings(missing.into_iter().chain(relative).collect(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tao_installation_is_recognised() {
        let folder = std::env::temp_dir().join(format!("corelane-tao-{}", std::process::id()));
        let missing = is_tao(&folder).unwrap_err();
        assert_eq!(missing.lines().count(), 3, "{missing}");
        for name in ["bin/tao_idl", "include/tao/RTPortableServer/RTPortableServer.h", "lib/libTAO_RTPortableServer.so"]
        {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        assert_eq!(is_tao(&folder), Ok(String::new()));
        std::fs::remove_dir_all(&folder).unwrap();
        let mut steps = Steps::new(folder);
        assert!(!run(&mut steps, &["--tao"]) && !run(&mut steps, &["tao"]));
    }
}
