//! `cargo xtask figures`: measures the README's figures, and writes the table and the picture.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;

use crate::steps::{self, Outcome, Steps};

const BEGIN: &str = "<!-- figures: `cargo xtask figures` writes them -->";
const END: &str = "<!-- end of the figures -->";

const PICTURE: &str = "docs/calls.svg";

/// A machine with a lower load average counts as idle.
const IDLE_LOAD: f64 = 0.3;

/// Maximum time in seconds to wait for an idle machine.
const MAX_WAIT_SECONDS: u32 = 240;

const ROWS: [(&str, &str); 3] = [
    ("octet", "two-way call with an octet, median"),
    ("structs1024", "two-way call with 1,024 structures there and back, median"),
    ("oneway", "oneway calls with an octet"),
];

/// Measures the figures and writes the table and the picture. Returns false if an option is not
/// `--quick`.
pub(crate) fn run(steps: &mut Steps, options: &[&str]) -> bool {
    if !options.iter().all(|option| *option == "--quick") {
        return false;
    }
    let build = ["build", "--release", "--locked", "--quiet", "--package", "corelane-cli"];
    if !steps.command("release build", steps::cargo().args(build)) {
        return true;
    }
    steps.step("wait until the machine is idle", |_| wait_until_idle());
    let (root, target) = (steps.root().to_path_buf(), steps.root().join("target"));
    let (program, json) = (target.join("release").join("corelane"), target.join("figures.json"));
    let mut measure = Command::new(&program);
    measure.args(["bench", "run", "cubit"]).args(ROWS.iter().flat_map(|(operation, _)| ["--op", operation]));
    measure.args(options).arg("--json").arg(&json).current_dir(&root);
    if !steps.command("benchmark", &mut measure) {
        return true;
    }
    let mut draw = Command::new(&program);
    draw.args(["bench", "report"]).arg(&json).arg("--out").arg(target.join("figures.html"));
    draw.args(["--picture", PICTURE, "--op", ROWS[0].0, "--op", ROWS[1].0]).current_dir(&root);
    if steps.command("picture", &mut draw) {
        steps.step("figures", |root| write(root, &json));
    }
    true
}

fn wait_until_idle() -> Outcome {
    for _ in 0..MAX_WAIT_SECONDS {
        let text = std::fs::read_to_string("/proc/loadavg").map_err(|error| format!("/proc/loadavg: {error}"))?;
        let load = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        if load < IDLE_LOAD {
            return Ok(format!("the load average is {load}"));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok("the machine is still busy: the figures will say so".to_owned())
}

fn write(root: &Path, json: &Path) -> Outcome {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let path = root.join("README.md");
    let text = replaced(&read(&path)?, &figures(&read(json)?)?)?;
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("README.md and {PICTURE} now have the figures of this machine"))
}

fn replaced(readme: &str, figures: &str) -> Result<String, String> {
    let missing = || format!("README.md lacks the lines `{BEGIN}` and `{END}`");
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{figures}{END}{after}"))
}

fn figures(lines: &str) -> Result<String, String> {
    let lines: Vec<Json> = lines
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let run = lines.iter().find(|line| line["record"] == "run").ok_or("the run has no description")?;
    let mut text =
        String::from("| over TCP, on one machine | Corelane | omniORB | bare sockets |\n|---|---|---|---|\n");
    for (operation, description) in ROWS {
        let _ = write!(text, "| {description} |");
        for (peer, config) in [("Corelane", "thread per connection"), ("omniORB", "as it comes"), ("floor", "blocking")]
        {
            let found = lines.iter().find(|line| {
                line["record"] == "result"
                    && line["op"] == operation
                    && line["peer"] == peer
                    && line["config"] == config
            });
            let cell = match found {
                Some(line) => number(line).ok_or_else(|| format!("{peer}'s {operation} has no number"))?,
                // A run may lack an operation of another product, but not of Corelane.
                None if peer == "Corelane" => return Err(format!("the run has no {operation} of Corelane")),
                None => "not measured".to_owned(),
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    let of_run = |name: &str| run[name].as_str().unwrap_or("unknown").to_owned();
    let quiet = if run["quiet"] == true { "" } else { "; other programs shared the machine" };
    let _ = write!(
        text,
        "\n![Medians and 99th percentiles of two calls, by ORB]({PICTURE})\n\n\
         Measured by `cargo xtask figures` on {}: {}, Linux {}; {}; {}, {} turns of {} calls{quiet}.\n",
        of_run("date"),
        of_run("processor"),
        of_run("kernel"),
        of_run("pinning"),
        of_run("scheduling"),
        run["repetitions"],
        run["count"],
    );
    Ok(text)
}

/// Returns the rate in calls per second if the result compares rates, and otherwise the median in
/// microseconds, as a text. Returns `None` if the number is missing.
fn number(line: &Json) -> Option<String> {
    if line["compared"] == "per_s" {
        return Some(format!("{:.0},000/s", line["per_s"].as_f64()? / 1000.0));
    }
    Some(format!("{:.1} us", line["p50_us"].as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(operation: &str, peer: &str, config: &str, rest: &str) -> String {
        format!("{{\"record\":\"result\",\"op\":\"{operation}\",\"peer\":\"{peer}\",\"config\":\"{config}\",{rest}}}\n")
    }

    fn run() -> String {
        let run = "{\"record\":\"run\",\"date\":\"2020-02-02\",\"processor\":\"P\",\"kernel\":\"6.1\",\"pinning\":\"core 1\",\
                   \"scheduling\":\"SCHED_OTHER\",\"repetitions\":3,\"count\":2000,\"quiet\":true}\n";
        let own = |operation, rest| result(operation, "Corelane", "thread per connection", rest);
        run.to_owned()
            + &own("octet", "\"p50_us\":8.64,\"compared\":\"p50_us\"")
            + &result("octet", "omniORB", "as it comes", "\"p50_us\":10,\"compared\":\"p50_us\"")
            + &own("structs1024", "\"p50_us\":14.2,\"compared\":\"p50_us\"")
            + &own("oneway", "\"p50_us\":1,\"per_s\":312345.6,\"compared\":\"per_s\"")
    }

    #[test]
    fn each_figure_has_its_unit_and_the_run_its_conditions() {
        let text = figures(&run()).unwrap();
        for part in [
            "| two-way call with an octet, median | 8.6 us | 10.0 us | not measured |",
            "| oneway calls with an octet | 312,000/s | not measured | not measured |",
            "`cargo xtask figures` on 2020-02-02: P, Linux 6.1; core 1; SCHED_OTHER, 3 turns of 2000 calls.",
            "](docs/calls.svg)",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let busy = figures(&run().replace("\"quiet\":true", "\"quiet\":false")).unwrap();
        assert!(busy.contains("other programs shared the machine"), "{busy}");
    }

    #[test]
    fn a_run_without_the_orbs_figures_is_refused() {
        let without = run().replace("\"op\":\"oneway\"", "\"op\":\"long\"");
        assert_eq!(figures(&without), Err("the run has no oneway of Corelane".to_owned()));
        assert!(figures("").is_err() && figures("no JSON").is_err());
    }

    #[test]
    fn only_the_text_between_the_marks_changes() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        assert_eq!(replaced(&readme, "new\n"), Ok(format!("before\n{BEGIN}\nnew\n{END}\nafter\n")));
        assert!(replaced("no marks", "new\n").is_err());
    }

    #[test]
    fn the_readme_has_the_marks() {
        let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        let text = std::fs::read_to_string(readme).unwrap();
        assert!(replaced(&text, "").is_ok());
    }
}
