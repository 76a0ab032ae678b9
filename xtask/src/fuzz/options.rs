//! Command line of `cargo xtask fuzz`.

use std::time::Duration;

use super::engine::Limit;
use super::{TARGETS, Target};

const TIME: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Run,
    List,
    Keep,
    Prove,
}

pub(crate) struct Options {
    pub(crate) work: Work,
    pub(crate) targets: Vec<&'static Target>,
    pub(crate) limit: Limit,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { work: Work::Run, targets: Vec::new(), limit: Limit::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--list" => options.work = Work::List,
                "--keep" => options.work = Work::Keep,
                "--prove" => options.work = Work::Prove,
                "--runs" => options.limit.runs = Some(number(word, words.next())?),
                "--seconds" => options.limit.time = Some(Duration::from_secs(number(word, words.next())?)),
                option if option.starts_with('-') => {
                    return Err(format!(
                        "`{option}` is unknown; there are --runs N, --seconds N, --keep, --list, --prove"
                    ));
                }
                name => {
                    let known = TARGETS.iter().find(|target| target.name == name);
                    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                    let none = || format!("there is no target `{name}`; there are {}", names.join(", "));
                    options.targets.push(known.ok_or_else(none)?);
                }
            }
        }
        if options.targets.is_empty() {
            options.targets = TARGETS.iter().collect();
        }
        if options.limit == Limit::default() {
            options.limit.time = Some(TIME);
        }
        Ok(options)
    }
}

fn number(option: &str, word: Option<&&str>) -> Result<u64, String> {
    let parsed = word.and_then(|word| word.replace('_', "").parse().ok()).filter(|number| *number > 0);
    parsed.ok_or_else(|| format!("`{option}` needs a number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_any_order() {
        let options = Options::parse(&["idl", "--runs", "10_000", "cdr", "--seconds", "5"]).unwrap();
        assert_eq!(options.targets.iter().map(|target| target.name).collect::<Vec<_>>(), ["idl", "cdr"]);
        assert_eq!(options.limit, Limit { runs: Some(10_000), time: Some(Duration::from_secs(5)) });
        assert_eq!(options.work, Work::Run);
    }

    #[test]
    fn without_options_all_targets_run_for_a_minute() {
        let options = Options::parse(&[]).unwrap();
        assert_eq!((options.targets.len(), options.limit.time), (TARGETS.len(), Some(TIME)));
        assert_eq!(Options::parse(&["--runs", "5"]).unwrap().limit.time, None);
    }

    #[test]
    fn errors_are_reported() {
        for (words, part) in [
            (&["nothing"][..], "there is no target `nothing`; there are cdr"),
            (&["--fast"], "`--fast` is unknown"),
            (&["--runs"], "needs a number"),
            (&["--seconds", "0"], "above 0"),
        ] {
            let problem = Options::parse(words).err().unwrap();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
