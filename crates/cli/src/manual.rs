//! The commands `corelane completions`, which prints shell completions, and `corelane man`, which
//! writes manual pages to a folder.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::vec;

use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::text::excerpt;
use crate::{DONE, NOT_DONE, TOOLS, USAGE, arguments};

pub(crate) const COMPLETIONS_USAGE: &str = "\
usage: corelane completions SHELL

Prints completions of the commands and their options for a shell: bash, elvish, fish, powershell or zsh. In bash:

    corelane completions bash > ~/.local/share/bash-completion/completions/corelane

Exit status: 0 printed, 2 wrong usage.
";

pub(crate) const MAN_USAGE: &str = "\
usage: corelane man DIR

Writes manual pages of all commands to DIR, which is made if it is missing: corelane.1, corelane-call.1 and so on. `man -l FILE`
shows a page; `man` finds pages in a folder man1 of its search path, such as ~/.local/share/man/man1.

Exit status: 0 written, 1 not written, 2 wrong usage.
";

pub(crate) fn program() -> Command {
    let program = Command::new("corelane")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Real-time CORBA: IDL compiler, benchmarks, and tools for references, names, calls and the machine")
        .after_help("Exit status: 0 done, 1 not done, 2 wrong usage.")
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .subcommands(TOOLS.iter().map(|tool| (tool.command)()))
        .subcommand(arguments::command("version", USAGE))
        .subcommand(arguments::command("help", USAGE).arg(arguments::positional("COMMAND")));
    arguments::with_descriptions(program, USAGE)
}

pub(crate) fn completions_command() -> Command {
    arguments::command("completions", COMPLETIONS_USAGE).arg(arguments::positionals("SHELL"))
}

pub(crate) fn completions(words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    let parsed = arguments::parse(completions_command(), words);
    let names = match parsed {
        Ok(parsed) => arguments::texts(&parsed, "SHELL"),
        Err(refusal) => return arguments::print_refusal(refusal.reason(), COMPLETIONS_USAGE, out),
    };
    let [name] = names.as_slice() else {
        return arguments::print_refusal(Some("one shell is needed".to_owned()), COMPLETIONS_USAGE, out);
    };
    let Ok(shell) = Shell::from_str(name, false) else {
        let reason = format!("there are no completions for `{}`", excerpt(name));
        return arguments::print_refusal(Some(reason), COMPLETIONS_USAGE, out);
    };
    // The generator panics if its output fails, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program(), "corelane", &mut text);
    let _ = out.write_all(&text);
    DONE
}

pub(crate) fn man_command() -> Command {
    arguments::command("man", MAN_USAGE).arg(arguments::positionals("DIR"))
}

pub(crate) fn man(words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    let parsed = match arguments::parse(man_command(), words) {
        Ok(parsed) => parsed,
        Err(refusal) => return arguments::print_refusal(refusal.reason(), MAN_USAGE, out),
    };
    let folders: Vec<&OsString> = parsed.get_many("DIR").into_iter().flatten().collect();
    let [folder] = folders.as_slice() else {
        return arguments::print_refusal(Some("one folder is needed".to_owned()), MAN_USAGE, out);
    };
    let folder = Path::new(folder);
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(program(), folder));
    let (status, line) = match written {
        Ok(()) => (DONE, format!("{} has the manual pages", folder.display())),
        Err(error) => (NOT_DONE, format!("error: cannot write to `{}`: {error}", folder.display())),
    };
    let _ = writeln!(out, "{line}");
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_each(command: &Command, path: &str, check: &mut dyn FnMut(&Command, &str)) {
        let path = format!("{path}{}", command.get_name());
        check(command, &path);
        command.get_subcommands().for_each(|one| for_each(one, &format!("{path} "), check));
    }

    #[test]
    fn every_command_and_option_has_a_description() {
        program().debug_assert();
        let mut hidden = Vec::new();
        for_each(&program(), "", &mut |command, path| {
            assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{path}");
            for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
                if argument.is_hide_set() {
                    hidden.push(format!("{path}: {}", argument.get_id()));
                } else {
                    assert!(argument.get_help().is_some_and(|help| !help.to_string().is_empty()), "{path} {argument}");
                }
            }
        });
        assert_eq!(hidden, ["corelane call: case-sensitive", "corelane sniff: case-sensitive"]);
    }

    #[test]
    fn each_option_in_a_help_text_exists() {
        for tool in TOOLS {
            let command = (tool.command)();
            let all = || command.get_arguments().chain(command.get_subcommands().flat_map(Command::get_arguments));
            for line in (tool.help)().lines().filter(|line| line.starts_with("  -") && !line.starts_with("  - ")) {
                let names = line.split_whitespace().map(|word| word.trim_end_matches(','));
                for name in names.take_while(|word| word.starts_with('-')) {
                    let known = all().any(|argument| {
                        let long = argument.get_long().map(|long| format!("--{long}"));
                        let short = argument.get_short().map(|short| format!("-{short}"));
                        [long, short].into_iter().flatten().any(|form| form == name)
                    });
                    assert!(known, "{}: {name}", tool.name);
                }
            }
        }
    }
}
