//! The report that a client prints: a line for each check, and a last line with the counts.

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// The check's name.
    pub check: String,
    /// The report's line.
    pub line: String,
}

/// A client's report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names of passed checks.
    pub passed: Vec<String>,
    /// The checks that failed.
    pub failed: Vec<FailedCheck>,
}

impl Report {
    /// Parses a client's output: lines `ok NAME` and `FAIL NAME expected X got Y`, and finally `N
    /// passed, M failed`. Other lines are ignored.
    ///
    /// # Errors
    ///
    /// The line with the counts is missing, or its counts are wrong.
    pub fn parse(output: &str) -> Result<Self, String> {
        let mut report = Self::default();
        let mut closing = None;
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("ok ") {
                report.passed.push(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("FAIL ") {
                report.failed.push(FailedCheck { check: check_name(rest).to_owned(), line: line.to_owned() });
            } else if let Some(counts) = counts(line) {
                closing = Some(counts);
            }
        }
        match closing {
            Some(counts) if counts == (report.passed.len(), report.failed.len()) => Ok(report),
            Some(_) => Err("the client's closing line does not count its own lines".into()),
            None => Err("the client did not get to its closing line".into()),
        }
    }
}

/// Returns the name of a check at the start of a line. Names that begin with "big" have three
/// words, names that begin with "thread" two, and other names one.
fn check_name(rest: &str) -> &str {
    let words = match rest.split(' ').next() {
        Some("big") => 3,
        Some("thread") => 2,
        _ => 1,
    };
    rest.match_indices(' ').nth(words - 1).map_or(rest, |(end, _)| &rest[..end])
}

fn counts(line: &str) -> Option<(usize, usize)> {
    let (passed, rest) = line.split_once(" passed, ")?;
    let failed = rest.strip_suffix(" failed")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_assigned_to_passed_and_failed_checks() {
        let report = Report::parse(
            "ready\nok echo_long\ntook 5 ms\nFAIL echo_char round 1 result expected 00 got 01\n\
             FAIL big octets 1000 got exception COMM_FAILURE\nFAIL fail(FAIL_PLAIN) expected Plain got a result\n\
             FAIL thread 7 bounce expected 6 got 5\n1 passed, 4 failed\n",
        )
        .unwrap();
        assert_eq!(report.passed, ["echo_long"]);
        let names: Vec<&str> = report.failed.iter().map(|failed| failed.check.as_str()).collect();
        assert_eq!(names, ["echo_char", "big octets 1000", "fail(FAIL_PLAIN)", "thread 7"]);
    }

    #[test]
    fn report_without_its_last_line_is_refused() {
        assert!(Report::parse("ok echo_long\n").is_err());
        assert!(Report::parse("ok echo_long\n2 passed, 0 failed\n").is_err());
        assert!(Report::parse("").is_err());
    }
}
