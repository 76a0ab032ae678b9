//! The forms of configurations: omniORB's file, TAO's `svc.conf`, and lists of `-ORB` options.

use std::iter::Peekable;
use std::vec;

use super::{ForeignOrb, Malformed};

const MAX_SHOWN: usize = 60;
const WITHOUT_VALUE: &[&str] =
    &["daemon", "debug", "gioplite", "help", "ignoredefaultsvcconffile", "skipserviceconfigopen", "version"];
/// The first words of directives in `svc.conf`.
const DIRECTIVES: &[&str] = &["dynamic", "static", "suspend", "resume", "remove", "stream"];

#[derive(Debug)]
pub(super) struct OrbOption {
    pub(super) line: usize,
    /// The service in `svc.conf` to which the option belongs; `None` for an option of the ORB.
    pub(super) service: Option<String>,
    pub(super) shown: String,
    pub(super) content: OptionContent,
}

#[derive(Debug)]
pub(super) enum OptionContent {
    Option {
        name: String,
        value: Option<String>,
    },
    /// The text is the reason why the word is not converted.
    Other(&'static str),
}

impl OrbOption {
    /// Creates an option of a file. Fails if the text of the option was not UTF-8; comments may
    /// contain any bytes.
    fn new(line: usize, service: Option<&str>, shown: &str, content: OptionContent) -> Result<Self, Malformed> {
        if shown.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Malformed::new(line, shortened(shown), "not UTF-8"));
        }
        let shown = match service {
            Some(service) => shortened(&format!("{service} {shown}")),
            None => shortened(shown),
        };
        Ok(OrbOption { line, service: service.map(str::to_owned), shown, content })
    }
}

pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the options in a text, and their ORB if it is known. If `orb` is `None`, the first line
/// that is not a comment determines the format.
pub(super) fn parse(text: &str, orb: Option<ForeignOrb>) -> Result<(Option<ForeignOrb>, Vec<OrbOption>), Malformed> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let Some((number, first)) = lines.find(|(_, line)| !line.is_empty() && !line.starts_with('#')) else {
        return Ok((orb, Vec::new()));
    };
    if first.starts_with('<') {
        return Err(Malformed::new(number, shortened(first), "the XML form of svc.conf is not supported"));
    }
    if first.starts_with('-') {
        return Ok((orb, option_list(text)?));
    }
    let is_directive = || first.split_whitespace().next().is_some_and(|word| DIRECTIVES.contains(&word));
    match orb {
        Some(ForeignOrb::Tao) => Ok((orb, svc_conf(text)?)),
        None if is_directive() => Ok((Some(ForeignOrb::Tao), svc_conf(text)?)),
        Some(ForeignOrb::OmniOrb) | None => Ok((Some(ForeignOrb::OmniOrb), omniorb(text)?)),
    }
}

/// Returns the options in omniORB's configuration file. A line `= VALUE` has the name of the line
/// before, and a `\` at the end of a line continues the value.
fn omniorb(text: &str) -> Result<Vec<OrbOption>, Malformed> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut last_name = "";
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        let malformed = |reason| Malformed::new(number, shortened(line), reason);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // A line of the old form is not split at an equals sign, which is part of the reference.
        let is_old_reference = line.strip_prefix("ORBInitRef").is_some_and(|rest| rest.starts_with([' ', '\t']));
        let pair = line.split_once('=').filter(|_| !is_old_reference);
        let Some((name, value)) = pair else {
            let (name, value) = old_form(line).ok_or_else(|| malformed("a line is NAME = VALUE"))?;
            found.push(OrbOption::new(number, None, line, OptionContent::Option { name, value: Some(value) })?);
            continue;
        };
        match name.trim_end() {
            "" if last_name.is_empty() => return Err(malformed("the value has no name before it")),
            "" => {}
            name => last_name = name,
        }
        let mut value = value.trim().to_owned();
        while value.ends_with('\\') {
            value.pop();
            if let Some((_, next)) = lines.next() {
                value.push_str(next.trim_end());
            }
        }
        if value.is_empty() {
            return Err(malformed("the value is missing"));
        }
        let shown = format!("{last_name} = {value}");
        let content = OptionContent::Option { name: last_name.to_owned(), value: Some(value) };
        found.push(OrbOption::new(number, None, &shown, content)?);
    }
    Ok(found)
}

/// Returns name and value of a line in the form before omniORB 4: `NAME VALUE`.
fn old_form(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once([' ', '\t'])?;
    let value = value.trim_start().to_owned();
    let name = match name {
        "ORBInitRef" | "ORBDefaultInitRef" => &name[3..],
        "NAMESERVICE" => return Some(("InitRef".to_owned(), format!("NameService={value}"))),
        "INTERFACE_REPOSITORY" => return Some(("InitRef".to_owned(), format!("InterfaceRepository={value}"))),
        "ORBInitialHost" => "bootstrapAgentHostname",
        "ORBInitialPort" => "bootstrapAgentPort",
        "GATEKEEPER_ALLOWFILE" | "GATEKEEPER_DENYFILE" => "serverTransportRule",
        _ => return None,
    };
    Some((name.to_owned(), value))
}

fn option_list(text: &str) -> Result<Vec<OrbOption>, Malformed> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.starts_with('#') {
            let split = split_words(line).map_err(|reason| Malformed::new(index + 1, shortened(line), reason))?;
            words.extend(split.into_iter().map(|word| (index + 1, word)));
        }
    }
    options_of_words(words)
}

pub(crate) fn takes_value(word: &str) -> bool {
    let name = word.strip_prefix("-ORB").unwrap_or_default();
    !name.is_empty() && !WITHOUT_VALUE.iter().any(|known| known.eq_ignore_ascii_case(name))
}

pub(super) fn options_of_words(words: Vec<(usize, String)>) -> Result<Vec<OrbOption>, Malformed> {
    let mut found = Vec::new();
    let mut words = words.into_iter();
    while let Some((line, word)) = words.next() {
        let Some(name) = word.strip_prefix("-ORB").filter(|name| !name.is_empty()) else {
            found.push(OrbOption::new(line, None, &word, OptionContent::Other("it is not an option of an ORB"))?);
            continue;
        };
        let value = match takes_value(&word) {
            true => match words.next() {
                Some((_, value)) => Some(value),
                None => return Err(Malformed::new(line, shortened(&word), "the value is missing")),
            },
            false => None,
        };
        let shown = value.as_ref().map_or_else(|| word.clone(), |value| format!("{word} {value}"));
        found.push(OrbOption::new(line, None, &shown, OptionContent::Option { name: name.to_owned(), value })?);
    }
    Ok(found)
}

/// Splits a text at spaces, except within quotation marks of either kind.
fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in text.chars() {
        match quote {
            Some(end) if character == end => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None if matches!(character, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            None if character.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is missing");
    }
    words.extend(word);
    Ok(words)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectiveToken<'t> {
    Word(&'t str),
    Text(&'t str),
    Separator(char),
}

fn tokens(text: &str) -> Result<Vec<(usize, DirectiveToken<'_>)>, Malformed> {
    const SEPARATORS: &[char] = &[':', '*', '(', ')', '{', '}'];
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let after = &rest[first.len_utf8()..];
            match first {
                '#' => break,
                '"' | '\'' => {
                    let end = after.find(|one: char| !matches!(one, ' '..='~')).unwrap_or(after.len());
                    let Some(end) = after[..end].rfind(first) else {
                        return Err(Malformed::new(number, shortened(rest), "a quotation mark is missing"));
                    };
                    found.push((number, DirectiveToken::Text(&after[..end])));
                    rest = &after[end + 1..];
                }
                _ if SEPARATORS.contains(&first) => {
                    found.push((number, DirectiveToken::Separator(first)));
                    rest = after;
                }
                _ => {
                    let ends = |one: char| one.is_whitespace() || "#\"'".contains(one) || SEPARATORS.contains(&one);
                    let end = rest.find(ends).unwrap_or(rest.len());
                    found.push((number, DirectiveToken::Word(&rest[..end])));
                    rest = &rest[end..];
                }
            }
            rest = rest.trim_start();
        }
    }
    Ok(found)
}

fn svc_conf(text: &str) -> Result<Vec<OrbOption>, Malformed> {
    let mut reader = Directives { tokens: tokens(text)?.into_iter().peekable(), line: 1, found: Vec::new() };
    let mut is_in_stream = false;
    while let Some(token) = reader.next() {
        match token {
            DirectiveToken::Word(keyword @ ("dynamic" | "static")) => reader.service(keyword)?,
            DirectiveToken::Word(keyword @ ("suspend" | "resume" | "remove")) => {
                let name = reader.word()?;
                reader.directive(keyword, name)?;
            }
            DirectiveToken::Word("stream") if !is_in_stream => {
                match reader.word()? {
                    keyword @ ("dynamic" | "static") => reader.service(keyword)?,
                    name => reader.directive("stream", name)?,
                }
                is_in_stream = reader.takes('{');
            }
            DirectiveToken::Separator('}') if is_in_stream => is_in_stream = false,
            other => return Err(reader.unexpected(Some(other), "a directive begins with dynamic, static or the like")),
        }
    }
    match is_in_stream {
        true => Err(reader.unexpected(None, "the modules of a stream have no end")),
        false => Ok(reader.found),
    }
}

struct Directives<'t> {
    tokens: Peekable<vec::IntoIter<(usize, DirectiveToken<'t>)>>,
    line: usize,
    found: Vec<OrbOption>,
}

impl<'t> Directives<'t> {
    fn next(&mut self) -> Option<DirectiveToken<'t>> {
        let (line, token) = self.tokens.next()?;
        self.line = line;
        Some(token)
    }

    fn takes(&mut self, separator: char) -> bool {
        let is_next = self.tokens.peek().is_some_and(|(_, token)| *token == DirectiveToken::Separator(separator));
        if is_next {
            self.next();
        }
        is_next
    }

    fn word(&mut self) -> Result<&'t str, Malformed> {
        match self.next() {
            Some(DirectiveToken::Word(word)) => Ok(word),
            other => Err(self.unexpected(other, "a name is missing")),
        }
    }

    fn expect(&mut self, separator: char) -> Result<(), Malformed> {
        if self.takes(separator) {
            return Ok(());
        }
        let other = self.next();
        Err(self.unexpected(other, "a service is NAME TYPE * LIBRARY:FUNCTION() \"OPTIONS\""))
    }

    fn unexpected(&self, token: Option<DirectiveToken<'_>>, reason: &'static str) -> Malformed {
        let text = match token {
            Some(DirectiveToken::Word(text) | DirectiveToken::Text(text)) => shortened(text),
            Some(DirectiveToken::Separator(separator)) => separator.to_string(),
            None => "(end)".to_owned(),
        };
        Malformed::new(self.line, text, reason)
    }

    /// Records a directive that loads or changes a service, with the reason why it is not
    /// converted.
    fn directive(&mut self, keyword: &str, name: &str) -> Result<(), Malformed> {
        let content = OptionContent::Other(match name {
            "Naming_Loader" => "the counterpart is `corelane naming serve`",
            _ => "the commands do not load services",
        });
        self.found.push(OrbOption::new(self.line, None, &format!("{keyword} {name}"), content)?);
        Ok(())
    }

    fn service(&mut self, keyword: &str) -> Result<(), Malformed> {
        let name = self.word()?;
        if keyword == "dynamic" {
            if !["Module", "Service_Object", "STREAM"].contains(&self.word()?) {
                return Err(Malformed::new(self.line, shortened(name), "a type is Module, Service_Object or STREAM"));
            }
            self.expect('*')?;
            if !self.takes(':') {
                self.next();
                self.expect(':')?;
            }
            self.word()?;
            if self.takes('(') {
                self.expect(')')?;
            }
            if let Some((_, DirectiveToken::Word("active" | "inactive"))) = self.tokens.peek() {
                self.next();
            }
            self.directive(keyword, name)?;
        }
        match self.tokens.peek() {
            Some((_, DirectiveToken::Text(parameters))) => {
                let parameters = *parameters;
                self.next();
                self.parameters(name, parameters)
            }
            _ if keyword == "static" => self.directive(keyword, name),
            _ => Ok(()),
        }
    }

    fn parameters(&mut self, service: &str, parameters: &str) -> Result<(), Malformed> {
        let words =
            split_words(parameters).map_err(|reason| Malformed::new(self.line, shortened(parameters), reason))?;
        // A long service name in each option would make the work quadratic.
        let service = shortened(service);
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let value = if word.starts_with('-') { words.next_if(|next| !next.starts_with('-')) } else { None };
            let shown = value.as_ref().map_or_else(|| word.clone(), |value| format!("{word} {value}"));
            let content = match word.strip_prefix("-ORB") {
                Some(name) => OptionContent::Option { name: name.to_owned(), value },
                None => OptionContent::Other("it is an option of the service itself"),
            };
            self.found.push(OrbOption::new(self.line, Some(&service), &shown, content)?);
        }
        Ok(())
    }
}
