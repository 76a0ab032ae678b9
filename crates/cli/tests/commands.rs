//! Runs the examples of docs/commands.md and compares their output with the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use corelane::{Endpoint, Orb};
use corelane_services::naming::NamingConfig;

/// Returns true if the lines match the pattern. Within a line `...` matches any text, and a line
/// `...` matches any lines.
fn is_like(lines: &[&str], pattern: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skipped| is_like(&lines[skipped..], rest)),
        [first, rest @ ..] => match lines {
            [line, others @ ..] => is_line_like(line, first) && is_like(others, rest),
            [] => false,
        },
    }
}

fn is_line_like(line: &str, pattern: &str) -> bool {
    match pattern.split_once("...") {
        None => line == pattern,
        Some((begin, rest)) => line.strip_prefix(begin).is_some_and(|line| {
            let mut ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.any(|at| is_line_like(&line[at..], rest))
        }),
    }
}

#[test]
fn examples_of_the_page_print_what_the_page_shows() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().expect("an ORB");
    let _naming = NamingConfig::new().serve(&orb).expect("a name server");
    let Some(Endpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("no TCP endpoint") };
    let (written, here) = ("127.0.0.1:2809", format!("127.0.0.1:{port}"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("commands");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    let idl = "interface Echo { string say(in string what, in long count); readonly attribute long calls; };\n";
    fs::write(folder.join("echo.idl"), idl).expect("written");
    let omniorb = "InitRef = NameService=corbaname::names.example\n\
                   clientCallTimeOutPeriod = 5000\n\
                   endPoint = giop:tcp::2810\n\
                   giopMaxMsgSize = 8388608\n\
                   traceFile = /var/log/shop\n";
    fs::write(folder.join("omniORB.cfg"), omniorb).expect("written");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let examples = run_examples(&page, &folder, (written, &here));
    assert_eq!(examples, 21);
}

/// Runs the examples of a page, with the address `here` in place of the page's address `written`.
/// Returns the number of examples.
fn run_examples(page: &str, folder: &Path, (written, here): (&str, &str)) -> usize {
    let program = Path::new(env!("CARGO_BIN_EXE_corelane")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut examples = 0;
    for block in page.split("```console\n$ ").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        for example in block.split("\n$ ") {
            let (command, shown) = example.split_once('\n').unwrap_or((example, ""));
            let command = command.replace(written, here);
            let output = Command::new("sh").args(["-c", &command]).env("PATH", &path).current_dir(folder).output();
            let output = output.expect("sh starts");
            let said = String::from_utf8_lossy(&output.stdout).replace(here, written);
            let (lines, pattern): (Vec<&str>, Vec<&str>) = (said.lines().collect(), shown.lines().collect());
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(is_like(&lines, &pattern), "{command}\n{said}{errors}\nis not\n{shown}");
            examples += 1;
        }
    }
    examples
}

#[test]
fn examples_of_the_page_about_configurations_print_what_the_page_shows() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("configuration");
    fs::create_dir_all(&folder).expect("a folder for the test");
    let page = include_str!("../../../docs/configuration.md");
    let file = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a file");
    fs::write(folder.join("shop.toml"), file).expect("written");
    assert_eq!(run_examples(page, &folder, ("127.0.0.1:2809", "127.0.0.1:2809")), 3);
}

#[test]
fn commands_of_the_page_about_operations_run() {
    let page = include_str!("../../../docs/operations.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands: Vec<&str> = blocks.flat_map(str::lines).filter(|line| line.starts_with("corelane ")).collect();
    assert_eq!(commands, ["corelane doctor"]);
    for command in commands {
        let words = command.split(' ').skip(1);
        let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(words).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("scheduling-class"), "{said}");
    }
}

#[test]
fn each_command_is_documented_on_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let help = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("help").output().expect("the program starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for line in help.lines().filter(|line| line.starts_with("  ")) {
        let words = line[2..20].trim().trim_end_matches(" ...");
        if !words.starts_with("help") && words != "version" {
            assert!(page.contains(&format!("| `corelane {words}")), "{words}");
        }
    }
}

#[test]
fn dots_in_a_pattern_match_any_text_or_lines() {
    assert!(is_like(&["a", "b 12 c", "d"], &["a", "b ... c", "..."]));
    assert!(is_like(&["a"], &["...", "a", "..."]));
    assert!(!is_like(&["a", "b"], &["a"]));
    assert!(!is_like(&["a"], &["b..."]));
}
