//! Tests of options from a configuration file and from the environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

const NO_COMMAND: &str = "error: there is no command `version` that can be configured\n";

fn corelane(config: &str, variables: &[(&str, &str)], words: &[&str]) -> Output {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("config");
    fs::create_dir_all(&folder).expect("a folder for the test");
    let file = folder.join(format!("{:?}.toml", std::thread::current().id()));
    fs::write(&file, config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(words).env("CORELANE_CONFIG", &file).envs(variables.iter().copied());
    command.output().expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn called(config: &str, variables: &[(&str, &str)], words: &[&str]) -> String {
    let output = corelane(config, variables, &[&["naming", "list"], words].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    let at = said.find("tcp:").or_else(|| said.find("127.0.0.1:")).unwrap_or_else(|| panic!("{said}"));
    said[at..].split([' ', ',', '/']).next().unwrap_or_default().to_owned()
}

#[test]
fn option_has_the_value_of_the_first_source() {
    let config = "[naming]\nat = 'corbaloc::1.2@127.0.0.1:1/file'\ntimeout = 2\n";
    let variable = [("CORELANE_NAMING_AT", "corbaloc::1.2@127.0.0.1:2/environment")];
    let word = ["--at", "corbaloc::1.2@127.0.0.1:3/word"];
    assert!(called(config, &[], &[]).ends_with("127.0.0.1:1"));
    assert!(called(config, &variable, &[]).ends_with("127.0.0.1:2"));
    assert!(called(config, &variable, &word).ends_with("127.0.0.1:3"));
}

#[test]
fn faults_in_a_configuration_are_reported() {
    let output = corelane("[ping]\ntimeuot = 3\n", &[], &["ping", "corbaloc::h/k"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.ends_with("line 2: there is no option of `ping` `timeuot`: the nearest one is `timeout`\n"), "{said}");
    let output = corelane("[ping]\ntimeout = 'soon'\n", &[], &["ping", "corbaloc::h/k"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).starts_with("error: `--timeout` needs a number of seconds, not `soon`\n"),
        "{}",
        text(&output)
    );
    for words in [&["version"][..], &["help", "ping"], &["ping", "--help"], &["naming", "list", "--help"]] {
        assert_eq!(corelane("[ping\n", &[], words).status.code(), Some(0), "{words:?}");
    }
    let output = corelane("", &[], &["config", "show", "version"]);
    assert_eq!((output.status.code(), text(&output)), (Some(1), NO_COMMAND.to_owned()));
    let output = corelane("[ping\n", &[], &["config", "show"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn each_option_is_shown_with_its_source() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let config = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let variables = [("CORELANE_NAMING_SERVE_READ_ONLY", "false")];
    let said = text(&corelane(config, &variables, &["config", "show", "naming", "serve"]));
    assert!(said.contains("naming serve --listen: tcp::2809 unix:/run/names ([naming.serve] of the file)\n"), "{said}");
    assert!(said.contains("naming serve --read-only: false (CORELANE_NAMING_SERVE_READ_ONLY)\n"), "{said}");
    assert!(said.contains("naming serve --store: default\n") && !said.contains("naming list"), "{said}");
    let output = corelane(config, &variables, &["config", "show", "--json"]);
    let shown: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let options = shown["options"].as_array().expect("options");
    let find = |command: &str, option: &str| {
        let is_it = |one: &&Json| one["command"] == command && one["option"] == option;
        options.iter().find(is_it).unwrap_or_else(|| panic!("{command} {option}"))
    };
    let at = find("naming resolve", "at");
    assert_eq!((&at["source"], &at["place"]), (&"file".into(), &"naming".into()));
    assert_eq!(at["values"][0], "corbaloc::1.2@names.example:2809/NameService");
    assert_eq!((&find("ping", "timeout")["values"][0], &shown["schema"]), (&"0.5".into(), &1.into()));
    assert_eq!(find("call", "timeout")["values"], Json::Null);
}

fn file(name: &str, text: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("config-import");
    fs::create_dir_all(&folder).expect("a folder for the test");
    let file = folder.join(name);
    fs::write(&file, text).expect("written");
    file.to_string_lossy().into_owned()
}

#[test]
fn imported_options_of_other_orbs_configure_the_commands() {
    let omniorb = file("omniORB.cfg", b"# \xe9\nclientCallTimeOutPeriod = 1500\ngiopMaxMsgSize = 9000\n");
    let tao = file("svc.conf", b"static Server_Strategy_Factory \"-ORBConcurrency reactive\"\n");
    let words = ["-ORBInitRef", "NameService=corbaloc::1.2@127.0.0.1:7/x", "-ORBListenEndpoints", "iiop://:2810"];
    let output = corelane(
        "",
        &[],
        &[&["config", "import", "--for", "commands", &omniorb, &tao][..], &words, &["-ORBNodelay", "0"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let config = text(&output);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = |path: &str| {
        if path.len() > 60 { format!("{}... ({} characters)", &path[..60], path.len()) } else { path.to_owned() }
    };
    let expected = format!(
        "{}:3: `giopMaxMsgSize = 9000` is not carried over: the commands have no such option; programs set `Limits::max_message_size`\n\
         {}:1: `Server_Strategy_Factory -ORBConcurrency reactive` is not carried over: the commands have no such option; programs set `PoolConfig::dispatch`\n\
         argument 9: `-ORBNodelay 0` is not carried over: the commands have no such option; programs set `TcpProperties::no_delay`\n",
        shown(&omniorb),
        shown(&tao)
    );
    assert_eq!(errors, expected);
    let shown = text(&corelane(&config, &[], &["config", "show"]));
    for line in [
        "naming list --at: corbaloc::1.2@127.0.0.1:7/x ([naming] of the file)",
        "naming list --timeout: 1.5 ([naming] of the file)",
        "call --timeout: 1.5 ([call] of the file)",
        "naming serve --listen: tcp::2810 ([naming.serve] of the file)",
        "ping --timeout: default",
    ] {
        assert!(shown.contains(&format!("{line}\n")), "{line} is not in\n{shown}");
    }
    assert!(called(&config, &[], &[]).ends_with("127.0.0.1:7"));
}

#[test]
fn malformed_options_of_other_orbs_have_status_2_and_no_output() {
    let wrong = file("wrong.cfg", b"traceLevel = 1\ntraceLevel 2\n");
    for (words, status, reason) in [
        (&[wrong.as_str()][..], 2, "wrong.cfg:2: `traceLevel 2`: a line is NAME = VALUE\n"),
        (&["-ORBInitRef", "\x1b"], 2, "argument 1: `-ORBInitRef \\u{1b}`: an initial reference is NAME=REFERENCE\n"),
        (&["-ORBInitRef"], 2, "argument 1: `-ORBInitRef`: the value is missing\n"),
        (&["/nowhere"], 1, "`/nowhere` cannot be read: No such file or directory (os error 2)\n"),
    ] {
        let output = corelane("", &[], &[&["config", "import"][..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text(&output).as_str()), (Some(status), ""), "{said}");
        assert!(said.starts_with("error: ") && said.ends_with(reason), "{said}");
    }
}

#[test]
fn program_takes_imported_options_of_other_orbs() {
    let omniorb = file("program.cfg", b"clientCallTimeOutPeriod = 1500\nmaxServerThreadPoolSize = 9\n");
    let tao = file("program.conf", b"static Server_Strategy_Factory \"-ORBConcurrency reactive -ORBPOALock null\"\n");
    let words = ["-ORBInitRef", "Clock=corbaloc::1.2@127.0.0.1:7/x"];
    let output = corelane("", &[], &[&["config", "import", &omniorb, &tao][..], &words].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let reasons: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.rsplit_once(" is not carried over: "))
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, ["the dispatch architecture has no such number", "no counterpart is known"], "{errors}");
    let program = file("program.toml", text(&output).as_bytes());
    let shown = text(&corelane("", &[], &["config", "show", &program]));
    for line in [
        "call-timeout: 1500ms (",
        "pool.main.dispatch: reactive (",
        "initial-references.Clock: corbaloc::1.2@127.0.0.1:7/x (",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line}: {shown}");
    }
}

#[test]
fn settings_of_a_program_are_shown_as_json_with_their_sources() {
    let program = file("shown.toml", b"\ncall-timeout = '5s'\n[pool.main]\nthreads = 2\n");
    let variables = [("SHOP_ORB_DRAIN_TIMEOUT", "1s"), ("SHOP_ORBIT", "1")];
    let words = ["config", "show", "--json", "--environment", "SHOP_ORB", &program, "-ORBlisten", "tcp::1"];
    let output = corelane("", &variables, &words);
    let shown: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let find = |key: &str| {
        let settings = shown["settings"].as_array().expect("settings");
        let found = settings.iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("{key}"));
        (found["value"].clone(), found["source"].clone(), found["place"].clone())
    };
    assert_eq!(find("call-timeout"), ("5s".into(), "file".into(), 2.into()));
    assert_eq!(find("drain-timeout"), ("1s".into(), "environment".into(), "SHOP_ORB_DRAIN_TIMEOUT".into()));
    assert_eq!(find("listen"), ("tcp::1".into(), "argument".into(), "-ORBlisten".into()));
    assert_eq!(find("pool.main.max-queued"), ("1024".into(), "default".into(), Json::Null));
    assert_eq!((&shown["schema"], &shown["file"]), (&1.into(), &program.as_str().into()));
    for (words, status, said) in [
        (
            &["config", "show", &program, "-ORBcallTimeuot", "1s"][..],
            1,
            "error: -ORBcallTimeuot: there is no such setting: the nearest one is `-ORBcallTimeout`\n",
        ),
        (
            &["config", "show", "/nowhere"],
            1,
            "error: /nowhere: cannot be read: No such file or directory (os error 2)\n",
        ),
        (
            &["config", "show", "--json", "/nowhere"],
            1,
            "{\n  \"error\": \"/nowhere: cannot be read: No such file or directory (os error 2)\",\n  \"schema\": 1\n}\n",
        ),
        (&["config", "show", &program, "b.toml"], 2, "error: more than one file is given\n"),
        (&["config", "show", "--environment", "X"], 2, "error: `--environment` needs a file\n"),
        (
            &["config", "import", "--for", "peers", &program],
            2,
            "error: `peers` has no configuration: programs or commands\n",
        ),
    ] {
        let output = corelane("", &[], words);
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(text(&output).starts_with(said), "{words:?}: {}", text(&output));
    }
}
