//! Findings of an examination, each with its state and a remedy.

use serde_json::{Value as Json, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    Good,
    Bad,
    Unsure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExaminedObject {
    Object,
    NameServer,
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) subject: ExaminedObject,
    pub(super) check: &'static str,
    pub(super) verdict: CheckResult,
    pub(super) profile: Option<usize>,
    pub(super) endpoint: Option<String>,
    pub(super) found: String,
    /// A change that corrects the problem; empty if no change is necessary.
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self::of(CheckResult::Good, check, found, "")
    }

    pub(super) fn bad(check: &'static str, found: impl Into<String>, remedy: &str) -> Self {
        Self::of(CheckResult::Bad, check, found, remedy)
    }

    pub(super) fn unsure(check: &'static str, found: impl Into<String>, remedy: &str) -> Self {
        Self::of(CheckResult::Unsure, check, found, remedy)
    }

    fn of(verdict: CheckResult, check: &'static str, found: impl Into<String>, remedy: &str) -> Self {
        let remedy = remedy.to_owned();
        Finding {
            subject: ExaminedObject::Object,
            check,
            verdict,
            profile: None,
            endpoint: None,
            found: found.into(),
            remedy,
        }
    }

    pub(super) fn at(self, profile: usize, endpoint: Option<String>) -> Self {
        Finding { profile: Some(profile), endpoint, ..self }
    }

    pub(super) fn to_text(&self) -> String {
        let word = match self.verdict {
            CheckResult::Good => "yes",
            CheckResult::Bad => "NO",
            CheckResult::Unsure => "?",
        };
        let subject = match self.subject {
            ExaminedObject::Object => "",
            ExaminedObject::NameServer => "name server: ",
        };
        let profile = self.profile.map_or(String::new(), |profile| format!("profile {profile}: "));
        let endpoint = self.endpoint.as_ref().map_or(String::new(), |endpoint| format!("{endpoint}: "));
        let mut text = format!("{word:<4} {:<16} {subject}{profile}{endpoint}{}\n", self.check, self.found);
        if !self.remedy.is_empty() {
            text += &format!("     remedy: {}\n", self.remedy);
        }
        text
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "object": match self.subject {
                ExaminedObject::Object => "object",
                ExaminedObject::NameServer => "name server",
            },
            "check": self.check,
            "verdict": match self.verdict {
                CheckResult::Good => "yes",
                CheckResult::Bad => "no",
                CheckResult::Unsure => "unknown",
            },
            "profile": self.profile,
            "endpoint": self.endpoint,
            "found": self.found,
            "remedy": if self.remedy.is_empty() { Json::Null } else { json!(self.remedy) },
        })
    }
}
