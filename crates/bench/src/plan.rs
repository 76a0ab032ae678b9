//! The command `corelane bench plan`, which runs benchmarks on several machines or kernels and
//! collects the results.
//!
//! A plan is a JSON file (docs/benchmarks.md).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::Failure;
use crate::report::SCHEMA_VERSION;

#[derive(Clone, Debug, PartialEq, Eq)]
struct PlanStep {
    name: String,
    /// Host of the run; `None` means this machine.
    host: Option<String>,
    /// Path of the program on the host; `None` means a temporary copy of this program.
    program: Option<String>,
    send: bool,
    arguments: Vec<String>,
}

/// Prefix of the line with the program's path, because a login script may print other lines too.
const SENT: &str = "corelane-bench-sent ";

/// Executes the runs of a plan, and returns their number. `via` is ssh or its replacement.
///
/// A failed run does not prevent the following runs, but the function then returns an error.
pub(crate) fn run_plan(file: &Path, json: &Path, via: &Path, say: &mut dyn Write) -> Result<usize, Failure> {
    let text =
        fs::read_to_string(file).map_err(|error| Failure::new(format!("cannot read `{}`: {error}", file.display())))?;
    let steps = parse(&text).map_err(|reason| Failure::new(format!("{}: {reason}", file.display())))?;
    let unwritable = |error: std::io::Error| Failure::new(format!("cannot write `{}`: {error}", json.display()));
    let mut lines = BufWriter::new(File::create(json).map_err(unwritable)?);
    let mut failed = Vec::new();
    for step in &steps {
        let place = step.host.as_deref().unwrap_or("this machine");
        let _ = writeln!(say, "plan: {} on {place}", step.name);
        if let Err(reason) = step.run_step(via, &mut lines) {
            let _ = writeln!(say, "plan: {} FAILED: {reason}", step.name);
            failed.push(step.name.as_str());
        }
    }
    lines.flush().map_err(unwritable)?;
    match failed.as_slice() {
        [] => Ok(steps.len()),
        names => Err(Failure::new(format!("{} of {} runs failed: {}", names.len(), steps.len(), names.join(", ")))),
    }
}

fn parse(text: &str) -> Result<Vec<PlanStep>, String> {
    let plan: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if plan["schema"] != "corelane-plan" || plan["version"] != 1 {
        return Err("a plan must have \"schema\": \"corelane-plan\" and \"version\": 1".to_owned());
    }
    let runs = plan["runs"].as_array().ok_or("a plan must have a list of \"runs\"")?;
    let steps: Vec<PlanStep> = runs.iter().enumerate().map(|(at, run)| step(at, run)).collect::<Result<_, String>>()?;
    if steps.is_empty() { Err("the list of runs is empty".to_owned()) } else { Ok(steps) }
}

fn step(at: usize, run: &Json) -> Result<PlanStep, String> {
    let wrong = |reason: &str| format!("run {}: {reason}", at + 1);
    let text = |name: &str| match &run[name] {
        Json::Null => Ok(None),
        Json::String(text) if !text.is_empty() => Ok(Some(text.clone())),
        _ => Err(wrong(&format!("\"{name}\" must be a text"))),
    };
    let host = text("host")?;
    // ssh would parse a host with a leading `-` as an option.
    if host.as_ref().is_some_and(|host| host.starts_with('-')) {
        return Err(wrong("a host must not begin with a dash"));
    }
    let list = run["arguments"].as_array().ok_or_else(|| wrong("\"arguments\" must be a list of texts"))?;
    let arguments: Vec<String> = list
        .iter()
        .map(|word| word.as_str().map(str::to_owned))
        .collect::<Option<_>>()
        .ok_or_else(|| wrong("\"arguments\" must be a list of texts"))?;
    if arguments.is_empty() {
        return Err(wrong("no benchmark is named"));
    }
    let send = match &run["send"] {
        Json::Null => false,
        Json::Bool(send) => *send,
        _ => return Err(wrong("\"send\" must be true or false")),
    };
    if send && host.is_none() {
        return Err(wrong("\"send\" needs a host: nothing is sent to this machine"));
    }
    let program = text("program")?.or_else(|| (!send).then(|| "corelane".to_owned()));
    let name = text("name")?.unwrap_or_else(|| host.clone().unwrap_or_else(|| format!("run {}", at + 1)));
    Ok(PlanStep { name, host, program, send, arguments })
}

impl PlanStep {
    fn words(&self) -> Vec<String> {
        let mut words = vec!["bench".to_owned(), "run".to_owned()];
        words.extend(self.arguments.iter().cloned());
        words.extend(["--json".to_owned(), "-".to_owned(), "--name".to_owned(), self.name.clone()]);
        words
    }

    fn command(&self, via: &Path, program: &str) -> Result<Command, String> {
        let Some(host) = &self.host else {
            let own =
                std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
            let mut command = Command::new(own);
            command.args(self.words());
            return Ok(command);
        };
        let mut command = Command::new(via);
        let words: Vec<String> = std::iter::once(program.to_owned()).chain(self.words()).collect();
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        command.arg(host).arg(words.join(" "));
        Ok(command)
    }

    fn run_step(&self, via: &Path, lines: &mut dyn Write) -> Result<(), String> {
        let program = match (self.send, &self.program) {
            (true, wanted) => self.send(via, wanted.as_deref())?,
            (false, wanted) => wanted.clone().unwrap_or_default(),
        };
        let ran = self.run(via, &program, lines);
        if self.send && self.program.is_none() {
            let _ = self.shell(via, &format!("rm -f {}", quoted(&program)), Stdio::null());
        }
        ran
    }

    fn run(&self, via: &Path, program: &str, lines: &mut dyn Write) -> Result<(), String> {
        let mut command = self.command(via, program)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let mut trouble = None;
        let mut taken = 0_usize;
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            let line = line.map_err(|error| error.to_string())?;
            match is_result_line(&line) {
                true => {
                    taken += 1;
                    writeln!(lines, "{line}").map_err(|error| error.to_string())?;
                }
                false => trouble = trouble.or(Some(line)),
            }
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match (status.success(), taken) {
            (true, 1..) => Ok(()),
            (_, 0) => Err(format!(
                "no results came back ({status}){}",
                trouble.map_or(String::new(), |line| format!("; the output began with: {line}"))
            )),
            (false, _) => Err(status.to_string()),
        }
    }

    /// Copies this program to the host, as the file `wanted` or as a new file. Only the file's
    /// owner can use the copy. Returns the path.
    fn send(&self, via: &Path, wanted: Option<&str>) -> Result<String, String> {
        let own: PathBuf = std::env::current_exe().map_err(|error| error.to_string())?;
        let file = File::open(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        let place = match wanted {
            Some(path) => format!("f={}", quoted(path)),
            None => "f=$(mktemp \"${TMPDIR:-/tmp}/corelane-bench.XXXXXXXX\")".to_owned(),
        };
        let line = format!("{place} && cat > \"$f\" && chmod 700 \"$f\" && echo \"{SENT}$f\"");
        let said = self.shell(via, &line, file.into())?;
        let sent = said.lines().find_map(|line| line.strip_prefix(SENT));
        sent.map(str::to_owned)
            .ok_or_else(|| "the program could not be sent: the host did not report its path".to_owned())
    }

    fn shell(&self, via: &Path, line: &str, input: Stdio) -> Result<String, String> {
        let mut command = Command::new(via);
        command.arg(self.host.as_deref().unwrap_or_default()).arg(line).stdin(input).stderr(Stdio::inherit());
        match command.output() {
            Err(error) => Err(format!("{:?} cannot be started: {error}", command.get_program())),
            Ok(output) if !output.status.success() => Err(format!("the command on the host failed: {}", output.status)),
            Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    }
}

fn is_result_line(line: &str) -> bool {
    serde_json::from_str::<Json>(line)
        .is_ok_and(|line| line["schema"] == "corelane-bench" && line["version"] == SCHEMA_VERSION)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn plan(runs: &str) -> String {
        format!("{{\"schema\":\"corelane-plan\",\"version\":1,\"runs\":[{runs}]}}")
    }

    #[test]
    fn plans_are_parsed_and_invalid_ones_are_refused() {
        let text =
            plan("{\"arguments\":[\"call\",\"--quick\"]},{\"host\":\"u@rt\",\"send\":true,\"arguments\":[\"switch\"]}");
        let steps = parse(&text).unwrap();
        assert_eq!((steps[0].name.as_str(), steps[0].host.as_deref()), ("run 1", None));
        assert_eq!((steps[0].program.as_deref(), steps[1].program.as_deref()), (Some("corelane"), None));
        assert_eq!(steps[1].name, "u@rt");
        for (runs, hint) in [
            ("", "empty"),
            ("{}", "list of texts"),
            ("{\"arguments\":[]}", "no benchmark"),
            ("{\"arguments\":[1]}", "list of texts"),
            ("{\"arguments\":[\"call\"],\"host\":\"-oProxyCommand=x\"}", "dash"),
            ("{\"arguments\":[\"call\"],\"send\":true}", "this machine"),
            ("{\"arguments\":[\"call\"],\"name\":5}", "a text"),
        ] {
            assert!(parse(&plan(runs)).unwrap_err().contains(hint), "{runs}");
        }
        assert!(parse("{}").unwrap_err().contains("corelane-plan"));
    }

    #[test]
    fn quoted_words_pass_a_shell_unchanged() {
        assert_eq!(quoted("--core=1"), "--core=1");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn results_come_back_from_another_host() {
        let folder = std::env::temp_dir().join(format!("corelane-plan-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let ssh = script("ssh", "#!/bin/sh\nhost=$1; shift; echo \"welcome to $host\"; exec sh -c \"$*\"\n");
        let there = script(
            "corelane",
            "#!/bin/sh\n[ \"$3\" = broken ] && exit 3\necho \"{\\\"schema\\\":\\\"corelane-bench\\\",\\\"version\\\":1,\\\"run\\\":\\\"r\\\",\\\"record\\\":\\\"run\\\",\
             \\\"name\\\":\\\"$8\\\",\\\"words\\\":\\\"$1 $2 $3 $4\\\"}\"\n",
        );
        let run = |name: &str, bench: &str| {
            format!(
                "{{\"name\":\"{name}\",\"host\":\"rt1\",\"program\":\"{}\",\"arguments\":[\"{bench}\",\"--quick\"]}}",
                there.display()
            )
        };
        let (file, json) = (folder.join("plan.json"), folder.join("out.json"));
        let mut said = Vec::new();
        fs::write(&file, plan(&run("my host", "call"))).unwrap();
        assert_eq!(run_plan(&file, &json, &ssh, &mut said).unwrap(), 1);
        let line: Json = serde_json::from_str(fs::read_to_string(&json).unwrap().trim()).unwrap();
        assert_eq!((&line["name"], &line["words"]), (&"my host".into(), &"bench run call --quick".into()));
        fs::write(&file, plan(&(run("bad", "broken") + "," + &run("good", "call")))).unwrap();
        let failure = run_plan(&file, &json, &ssh, &mut said).unwrap_err().to_string();
        assert!(failure.contains("1 of 2") && failure.contains("bad"), "{failure}");
        assert_eq!(fs::read_to_string(&json).unwrap().lines().count(), 1);
        assert!(String::from_utf8(said).unwrap().contains("welcome to rt1"));
        assert!(run_plan(&folder.join("none"), &json, &ssh, &mut Vec::new()).is_err());
        let step = |program: Option<&str>| PlanStep {
            name: "sent".to_owned(),
            host: Some("rt1".to_owned()),
            program: program.map(str::to_owned),
            send: true,
            arguments: vec!["call".to_owned()],
        };
        let wanted = folder.join("it's wanted");
        let (first, second) = (step(None).send(&ssh, None).unwrap(), step(None).send(&ssh, None).unwrap());
        let named = step(None).send(&ssh, wanted.to_str()).unwrap();
        assert!(first != second && named == wanted.to_str().unwrap());
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for sent in [&first, &second, &named] {
            assert_eq!(fs::metadata(sent).unwrap().permissions().mode() & 0o777, 0o700);
            assert!(fs::read(sent).unwrap() == own);
            fs::remove_file(sent).unwrap();
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
