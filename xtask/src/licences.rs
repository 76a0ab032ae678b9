//! Checks the licences of the dependencies, as SPDX expressions.

use crate::metadata::Metadata;

/// Permissive licences.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata.external() {
        let crate_name = format!("crate `{}` {}", package.name, package.version);
        match package.licence.as_deref() {
            None => found.push(format!("{crate_name} states no SPDX licence expression")),
            Some(expression) => match satisfiable(expression) {
                Ok(true) => {}
                Ok(false) => found.push(format!(
                    "{crate_name} is licensed `{expression}`, which the allow-list in xtask/src/licences.rs cannot satisfy"
                )),
                Err(problem) => found.push(format!("{crate_name} is licensed `{expression}`: {problem}")),
            },
        }
    }
    found
}

/// Returns true if the permitted licences satisfy the expression. `/` is the old form of OR.
fn satisfiable(expression: &str) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words };
    let value = reader.alternatives()?;
    match reader.words.first() {
        None => Ok(value),
        Some(word) => Err(format!("`{word}` is not expected there")),
    }
}

struct Reader<'w> {
    words: &'w [&'w str],
}

impl Reader<'_> {
    fn alternatives(&mut self) -> Result<bool, String> {
        let mut value = self.conjunction()?;
        while self.take("OR") {
            value |= self.conjunction()?;
        }
        Ok(value)
    }

    fn conjunction(&mut self) -> Result<bool, String> {
        let mut value = self.licence()?;
        while self.take("AND") {
            value &= self.licence()?;
        }
        Ok(value)
    }

    fn licence(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let value = self.alternatives()?;
            return if self.take(")") { Ok(value) } else { Err("a `)` is missing".into()) };
        }
        let name = self.word()?;
        if self.take("WITH") {
            let whole = format!("{name} WITH {}", self.word()?);
            return Ok(ALLOWED.contains(&whole.as_str()));
        }
        Ok(ALLOWED.contains(&name.as_str()))
    }

    fn word(&mut self) -> Result<String, String> {
        match self.words.split_first() {
            Some((word, rest)) if !["OR", "AND", "WITH", "(", ")"].contains(word) => {
                self.words = rest;
                Ok((*word).to_owned())
            }
            Some((word, _)) => Err(format!("a licence is expected, not `{word}`")),
            None => Err("a licence is expected at the end".into()),
        }
    }

    fn take(&mut self, wanted: &str) -> bool {
        match self.words.split_first() {
            Some((word, rest)) if *word == wanted => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::registry;

    #[test]
    fn expressions_are_evaluated() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert_eq!(satisfiable(good), Ok(true), "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "GPL-2.0-only WITH Classpath-exception-2.0", "MPL-2.0"] {
            assert_eq!(satisfiable(bad), Ok(false), "{bad}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "AND MIT"] {
            assert!(satisfiable(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn the_crate_at_fault_is_named() {
        let packages = vec![
            registry("good", Some("MIT OR Apache-2.0")),
            registry("copyleft", Some("GPL-3.0-only")),
            registry("silent", None),
        ];
        let found = check(&Metadata { packages });
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`copyleft`") && found[0].contains("GPL-3.0-only"), "{found:?}");
        assert!(found[1].contains("`silent`"), "{found:?}");
    }
}
