//! Tests of the command lines of all commands: their words, exit statuses and error messages.

use std::path::PathBuf;
use std::process::{Command, Output};

fn corelane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("the program ends by itself")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn echo_idl() -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("forms");
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let file = folder.join(format!("echo-{:?}.idl", std::thread::current().id()));
    std::fs::write(&file, "interface Echo { string say(in string what, in long count); };\n").expect("written");
    file.to_string_lossy().into_owned()
}

const WRONG: &[(&[&str], &str)] = &[
    (&[], "no command is given"),
    (&["what"], "there is no command `what`"),
    (&["help", "what"], "there is no command `what`"),
    (&["idl"], "no file is given"),
    (&["idl", "--what", "f"], "there is no option `--what`"),
    (&["idl", "-o"], "`-o` needs a value"),
    (&["idl", "dump"], "one file is needed"),
    (&["idl", "dump", "a", "b"], "one file is needed"),
    (&["idl", "dump", "--what", "a"], "there is no option `--what`"),
    (&["idl", "dump", "-I"], "`-I` needs a value"),
    (&["call"], "no IDL is given"),
    (&["call", "--idl", "f"], "no reference is given"),
    (&["call", "--idl", "f", "r"], "no operation is given: --list shows the operations"),
    (&["call", "--idl"], "`--idl` needs a value"),
    (&["call", "-D"], "`-D` needs a value"),
    (&["call", "--what", "r", "o"], "there is no option `--what`"),
    (&["call", "--timeout", "0", "--idl", "f", "r", "o"], "a time-out is a number of seconds"),
    (&["call", "--timeout", "-1", "--idl", "f", "r", "o"], "a time-out is a number of seconds"),
    (&["call", "--context", "x", "--idl", "f", "r", "o"], "a property is NAME=VALUE"),
    (
        &["call", "--context", "9=x", "--idl", "f", "r", "o"],
        "`9=x` is not a property: NAME is a letter, then letters, digits, `_` and `.`",
    ),
    (&["call", "--list", "--idl", "f", "r", "o"], "--list takes no operation and no arguments"),
    (&["call", "--list"], "no IDL is given"),
    (&["ior"], "no reference is given"),
    (&["ior", "--what"], "there is no option `--what`"),
    (&["ior", "corbaloc::h/k", "-x"], "there is no option `-x`"),
    (&["sniff"], "no file is given"),
    (&["sniff", "a", "b"], "there is no argument `b`"),
    (&["sniff", "a", "--interface", "lo"], "`--interface` takes no file"),
    (&["sniff", "a", "--idl-interface", "I"], "`--idl-interface` needs `--idl`"),
    (&["sniff", "a", "--port", "0"], "`0` is not a port"),
    (&["config"], "no command is given"),
    (&["config", "what"], "there is no command `config what`"),
    (&["config", "import"], "no file and no -ORB option is given"),
    (&["config", "import", "--from", "mico", "f"], "`mico` is not an ORB: omniorb or tao"),
    (&["config", "import", "--what"], "there is no option `--what`"),
    (&["config", "show", "-ORBInitRef", "x"], "there is no option `-O`"),
    (&["naming"], "no command is given"),
    (&["naming", "what"], "there is no command `naming what`"),
    (&["naming", "bind", "a"], "`naming bind` has too few arguments"),
    (&["naming", "resolve"], "`naming resolve` has too few arguments"),
    (&["naming", "resolve", "a", "b"], "`naming resolve` has too many arguments"),
    (&["naming", "list", "--at"], "`--at` needs a value"),
    (&["naming", "list", "--dry-run"], "`naming list` has no option `--dry-run`"),
    (&["naming", "serve", "--at", "x"], "`naming serve` has no option `--at`"),
    (&["naming", "serve", "x"], "`naming serve` has too many arguments"),
    (&["naming", "serve", "--durability", "x"], "`x` is not a durability: synced or relaxed"),
    (&["naming", "list", "--timeout", "0"], "a time-out is a number of seconds"),
    (&["naming", "backup", "copy"], "`naming backup` needs --store"),
    (&["naming", "backup", "--store", "a", "--control", "b", "c"], "`naming backup` takes either --store or --control"),
    (&["naming", "shutdown"], "`naming shutdown` needs --control"),
    (&["naming", "shutdown", "--control", "a", "b"], "`naming shutdown` has too many arguments"),
    (&["naming", "import"], "`naming import` needs --from"),
    (&["naming", "watch", "--count", "0"], "`0` is not a number from 1 to 18446744073709551615"),
    (&["naming", "watch", "a", "b"], "`naming watch` has too many arguments"),
    (&["naming", "serve", "--allow-control", "0"], "`--allow-control` needs --store or --control"),
    (&["cores"], "no command is given"),
    (&["cores", "what"], "there is no command `cores what`"),
    (&["cores", "analyse"], "no task file is given"),
    (&["cores", "analyse", "f", "g"], "`g` is one argument too many"),
    (&["cores", "analyse", "f", "--global"], "there is no option `--global` here"),
    (&["cores", "analyse", "f", "--cores", "0"], "`--cores` needs a number from 1 to 1024, not `0`"),
    (&["cores", "analyse", "f", "--discipline", "x"], "there is no discipline `x`"),
    (&["cores", "simulate", "f", "--lose", "1"], "`--lose 1`: expected CORE@TIME"),
    (&["cores", "simulate", "f", "--for"], "`--for` needs a value"),
    (&["cores", "generate"], "`--util` is missing"),
    (
        &["cores", "generate", "--util", "1.6", "--tasks", "3", "--balance", "0.1"],
        "`--balance` and `--tasks` exclude each other",
    ),
    (&["cores", "generate", "--util", "1.6", "f"], "`f` is one argument too many"),
    (&["cores", "calibrate", "--target", "t"], "`--target` and `--operation` need each other"),
    (&["cores", "calibrate", "--for", "1s"], "`--for` needs `--at`"),
    (&["bench"], "no command is given; there are list, run, all, plan and report"),
    (&["bench", "what"], "there is no command `what`; there are list, run, all, plan and report"),
    (&["bench", "run", "call", "--core"], "`--core` needs a value"),
    (&["bench", "run", "--what"], "there is no option `--what`"),
    (&["rio"], "no command is given"),
    (&["rio", "what"], "there is no command `rio what`"),
    (&["rio", "status"], "no interface is given"),
    (&["rio", "calibrate", "lo"], "`lo` is one argument too many"),
    (&["rio", "clean", "lo", "eth0"], "`eth0` is one argument too many"),
    (&["trace", "--what"], "there is no option `--what`"),
    (&["trace", "--out"], "`--out` needs a value"),
    (&["trace", "--calls", "0"], "`--calls` takes a number from 1 to 300, not `0`"),
    (&["trace", "--cores", "1"], "`--cores` takes two cores as in 0,1, not `1`"),
    (&["trace", "--op", "oneway"], "a oneway has no reply to wait for; choose another operation"),
    (&["ior", "make"], "no address is given"),
    (&["ior", "make", "--address", "h:1"], "no object key is given: `--key TEXT`, or `--key-hex HEX`"),
    (&["ior", "make", "--what"], "there is no option `--what`"),
    (&["ior", "make", "--address"], "`--address` needs a value"),
    (&["ping"], "no reference is given"),
    (&["ping", "--count", "0", "r"], "`--count` needs a number from 1 to 1000000, not `0`"),
    (&["ping", "r", "s"], "there is no argument `s`"),
    (&["completions"], "one shell is needed"),
    (&["man"], "one folder is needed"),
    (&["doctor", "--what"], "there is no argument `--what`"),
    (&["doctor", "r", "s"], "there is no argument `s`"),
    (&["doctor", "--timeout", "x", "r"], "a time-out is a number of seconds"),
    (&["doctor", "--timeout"], "`--timeout` needs a value"),
    (&["doctor", "--require"], "`--require` needs the name of a guarantee"),
];

#[test]
fn wrong_usage_has_status_2_the_reason_and_the_help() {
    for (words, reason) in WRONG {
        let output = corelane(words);
        let said = said(&output);
        assert_eq!(status(&output), 2, "{words:?}: {said}");
        assert!(said.starts_with(&format!("error: {reason}\n\nusage: corelane ")), "{words:?}: {said}");
    }
    let output = corelane(&["doctor", "--require=what"]);
    assert!(said(&output).starts_with("error: there is no guarantee `what`; there are "), "{}", said(&output));
}

#[test]
fn all_forms_of_help_print_one_text() {
    for (help, forms) in [
        (&["help"][..], &[&["--help"][..], &["-h"], &["help", "help"], &["help", "version"]][..]),
        (&["help", "call"], &[&["call", "--help"], &["call", "-h"], &["call", "--list", "r", "--help"]]),
        (&["ior", "--help"], &[&["ior", "-h"]]),
        (&["ior", "make", "--help"], &[&["ior", "make", "-h"]]),
        (&["help", "ping"], &[&["ping", "--help"], &["ping", "-h"]]),
        (&["help", "naming"], &[&["naming", "help"], &["naming", "-h"], &["naming", "list", "--help"]]),
        (&["help", "cores"], &[&["cores", "help"], &["cores", "--help"], &["cores", "simulate", "-h"]]),
        (&["help", "bench"], &[&["bench", "help"], &["bench", "--help"], &["bench", "run", "-h"]]),
        (&["help", "trace"], &[&["trace", "--help"], &["trace", "--calls", "3", "-h"]]),
        (&["help", "doctor"], &[&["doctor", "--help"], &["doctor", "-h"]]),
        (&["idl", "dump", "--help"], &[&["idl", "dump", "-h"]]),
    ] {
        let expected = corelane(help);
        assert_eq!(status(&expected), 0, "{help:?}");
        assert!(said(&expected).starts_with("usage: corelane ") && said(&expected).contains("\nExit status: 0 "));
        for form in forms {
            let output = corelane(form);
            assert_eq!((status(&output), said(&output)), (0, said(&expected)), "{form:?}");
        }
    }
    for (command, second) in [("idl", "dump"), ("ior", "make")] {
        let forms = [said(&corelane(&[command, "--help"])), said(&corelane(&[command, second, "--help"]))];
        assert_eq!(said(&corelane(&["help", command])), forms.join("\n"));
    }
    for form in ["version", "--version", "-V"] {
        assert_eq!(said(&corelane(&[form])), format!("corelane {}\n", env!("CARGO_PKG_VERSION")));
    }
}

/// The error message shows how the words of a call were parsed.
#[test]
fn call_takes_options_up_to_the_operation_and_arguments_after_it() {
    let idl = echo_idl();
    let dead = "corbaloc::127.0.0.1:1/x";
    for (words, reason) in [
        (&["--idl", &idl, dead, "what"][..], "`what`"),
        (&[dead, "--idl", &idl, "what"], "`what`"),
        (&["-Ifolder", "-DX", "-D", "Y=1", "-I", "folder", "--idl-4", "--idl", &idl, dead, "what"], "`what`"),
        (&["--idl", "missing.idl", "--idl", &idl, dead, "what"], "`what`"),
        (&["--timeout", "0.5", "--timeout", "2", "--idl", &idl, dead, "what"], "`what`"),
        (&["--idl", &idl, dead, "say"], "`say` takes 2 arguments, and 0 are given"),
        (&["--idl", &idl, dead, "say", "--list"], "`say` takes 2 arguments, and 1 are given"),
        (&["--idl", &idl, dead, "say", "-h", "--idl", "--"], "`say` takes 2 arguments, and 3 are given"),
        (&["--idl", &idl, dead, "say", "a", "-x"], "argument `count`: \"-x\" is no long"),
        (&["--idl", &idl, dead, "say", "-I", "-5"], "TRANSIENT"),
        (&["--idl", &idl, dead, "say", "-5", "-5"], "TRANSIENT"),
        (&["--interface", "-x", "--idl", &idl, dead, "say", "a", "1"], "-x"),
    ] {
        let output = corelane(&[&["call"], words].concat());
        let said = said(&output);
        assert_eq!(status(&output), 1, "{words:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(reason), "{words:?}: {said}");
    }
    let listed = corelane(&["call", "--list", "--idl", &idl]);
    assert_eq!(status(&listed), 0);
    assert!(said(&listed).contains("say"), "{}", said(&listed));
}

#[test]
fn options_are_accepted_in_every_form() {
    let idl = echo_idl();
    for (words, expected) in [
        (&["idl", "dump", "-DX=1", "-I", "folder", "--idl-4", &idl][..], 0),
        (&["idl", "dump", "missing.idl"], 1),
        (&["idl", "--check", "--message-format=json", &idl], 0),
        (&["ior", "corbaloc::h/k", "corbaloc::i/k"], 0),
        (&["ior", "corbaloc::h/k", "nonsense"], 1),
        (&["cores", "generate", "--util", "1.2", "--util", "1.6", "--seed", "3"], 0),
        (&["cores", "analyse", "missing.toml"], 1),
        (&["naming", "resolve", "x", "--at", "corbaloc::127.0.0.1:1/NameService"], 1),
        (&["naming", "resolve", "--at", "corbaloc::127.0.0.1:1/NameService", "--timeout", "2", "-x"], 1),
        (&["doctor", "--require", "timer-slack"], 0),
        (&["doctor", "--require=timer-slack", "--require", "timer-slack"], 0),
        (&["bench", "list"], 0),
    ] {
        let output = corelane(words);
        assert_eq!(status(&output), expected, "{words:?}: {}", said(&output));
    }
}

#[test]
fn completions_and_manual_pages_contain_every_command() {
    let top = said(&corelane(&["help"]));
    let commands = top.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = commands.filter(|name| !name.is_empty()).collect();
    assert!(commands.contains(&"call") && commands.contains(&"doctor"), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = corelane(&["completions", shell]);
        assert_eq!(status(&output), 0, "{shell}");
        let text = said(&output);
        for command in &commands {
            assert!(text.contains(command), "{shell}: {command}");
        }
        for option in ["message-format", "without-peers", "dry-run", "rt-app"] {
            assert!(text.contains(option), "{shell}: {option}");
        }
    }
    assert!(said(&corelane(&["completions", "dos"])).starts_with("error: there are no completions for `dos`"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let _ = std::fs::remove_dir_all(&folder);
    let output = corelane(&["man", &folder.to_string_lossy()]);
    assert_eq!(status(&output), 0, "{}", said(&output));
    let page = |name: &str| {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1")));
        page.unwrap_or_else(|error| panic!("{name}: {error}")).replace("\\-", "-")
    };
    for command in commands {
        assert!(page(&format!("corelane-{command}")).contains(".SH NAME"), "{command}");
    }
    assert!(page("corelane").contains("corelane-naming"));
    assert!(page("corelane-call").contains("give up after this time (30)"));
    assert!(page("corelane-idl").contains("also write which files the output depends on"));
    assert!(page("corelane-naming-prune").contains("unbind nothing, and print what would be unbound"));
    assert!(page("corelane-naming-import").contains("the context whose names are copied to NAME"));
    let nowhere = corelane(&["man", "/proc/nowhere"]);
    assert_eq!(status(&nowhere), 1);
    assert!(said(&nowhere).starts_with("error: cannot write to `/proc/nowhere`"), "{}", said(&nowhere));
}

#[test]
fn bash_completes_commands_and_options() {
    let script = format!(
        "source <({} completions bash) && COMP_WORDS=(corelane \"$1\" \"$2\") && COMP_CWORD=$3 && \
         _corelane corelane \"${{COMP_WORDS[$3]}}\" \"${{COMP_WORDS[$3-1]}}\" && echo \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_corelane")
    );
    for (words, expected) in [(["nam", "", "1"], "naming"), (["doctor", "--req", "2"], "--require")] {
        let output = Command::new("bash").args(["-c", &script, "bash"]).args(words).output().expect("bash starts");
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
    }
}
