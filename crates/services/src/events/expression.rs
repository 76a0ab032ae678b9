//! Filters as text: `all(inertial, position)`, `type 16 source 3 or not source 7`.
//!
//! Each filter of the `prefix` builder has an expression. Within the parser's bounds, the
//! expression is read as the same filter.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use corelane_sched::quantity::{format_time, parse_time};

use super::designator::{DependencySet, Designator, TIME_UNIT, TimeoutKind};
use super::filter::{EventFilter, FilterBuilder, FilterError, FilterLimits, NodeKind};
use super::header::{EventHeader, EventSource, EventType};

const MAX_BYTES: usize = 64 << 10;
/// Maximum number of expressions inside each other, which bounds the recursion of the parser. The
/// deepest filter may need a pair of parentheses for each of its groups.
const MAX_DEPTH: usize = 2 * FilterLimits::MAX_SUPPORTED_DEPTH;

const KEYWORDS: [&str; 11] =
    ["type", "source", "any", "not", "and", "or", "all", "bits", "timeout", "interval", "deadline"];

/// The names of types and sources in filter expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventNames {
    types: BTreeMap<String, EventType>,
    sources: BTreeMap<String, EventSource>,
}

impl EventNames {
    /// Returns an empty set of names.
    #[must_use]
    pub const fn new() -> Self {
        Self { types: BTreeMap::new(), sources: BTreeMap::new() }
    }

    /// Adds the name of a type. Expressions can use it if [`EventNames::is_name`] is true.
    pub fn add_type(&mut self, name: &str, event_type: EventType) {
        self.types.insert(name.to_owned(), event_type);
    }

    /// Adds the name of a source. Expressions can use it if [`EventNames::is_name`] is true.
    pub fn add_source(&mut self, name: &str, source: EventSource) {
        self.sources.insert(name.to_owned(), source);
    }

    /// Returns true if an expression can have this name: a letter or `_`, then letters, digits,
    /// `_`, `.` and `-`; not a keyword of expressions.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
        name.starts_with(is_first) && name.chars().all(is_in_name) && !KEYWORDS.contains(&name)
    }

    /// Returns the type with this name, if there is one.
    #[must_use]
    pub fn event_type(&self, name: &str) -> Option<EventType> {
        self.types.get(name).copied()
    }

    /// Returns the source with this name, if there is one.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<EventSource> {
        self.sources.get(name).copied()
    }

    /// Returns the name of a type, or its number if it has no name that expressions can use.
    #[must_use]
    pub fn type_text(&self, event_type: EventType) -> String {
        let found = self.types.iter().find(|(name, value)| **value == event_type && Self::is_name(name));
        found.map_or_else(|| event_type.0.to_string(), |(name, _)| name.clone())
    }

    /// Returns the name of a source, or its number if it has no name that expressions can use.
    #[must_use]
    pub fn source_text(&self, source: EventSource) -> String {
        let found = self.sources.iter().find(|(name, value)| **value == source && Self::is_name(name));
        found.map_or_else(|| source.0.to_string(), |(name, _)| name.clone())
    }
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-')
}

/// The reason why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterExpressionError {
    /// The text is not an expression.
    Malformed {
        /// The place in the text: the number of the character, counted from 1.
        column: usize,
        /// The reason why the text is not an expression.
        reason: String,
    },
    /// The expression describes a filter that is not permitted.
    Refused(FilterError),
}

impl fmt::Display for FilterExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { column, reason } => write!(f, "column {column}: {reason}"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FilterExpressionError {}

impl EventFilter {
    /// Reads a filter expression.
    ///
    /// | expression | the filter accepts |
    /// |---|---|
    /// | `NAME`, `type T`, `source S`, `type T source S` | events of a type, of a source, of both; 0 matches everything |
    /// | `any` | every event |
    /// | `type & MASK = VALUE`, `source & MASK = VALUE`, or both | events whose masked type and source have these values |
    /// | `E or F` | events that one of the filters accepts; each event goes to the first such filter |
    /// | `E and F` | events that all filters accept |
    /// | `not E` | events that the filter rejects |
    /// | `bits(TYPES, SOURCES) E` | events that the filter accepts, if type and source each share a bit with their mask |
    /// | `all(E, F)` | one set with an event for each filter, when all have arrived |
    /// | `timeout TIME`, `interval TIME`, `deadline TIME` | the timeout, such as `interval 50ms` |
    ///
    /// `not` and `bits` bind more closely than `and`, and `and` more closely than `or`. Parentheses
    /// group. `or(...)` and `and(...)` are groups of any number of filters. T, S, masks and values
    /// are numbers, decimal or hexadecimal (`0xff`), or names.
    ///
    /// ```
    /// use corelane_services::events::{EventFilter, EventNames, EventType, FilterLimits};
    ///
    /// let mut names = EventNames::new();
    /// names.add_type("inertial", EventType(16));
    /// let filter = EventFilter::parse("all(inertial, type 17 source 3)", &names, &FilterLimits::default())?;
    /// assert_eq!(filter.expression(&names), "all(inertial, type 17 source 3)");
    /// # Ok::<(), corelane_services::events::FilterExpressionError>(())
    /// ```
    ///
    /// # Errors
    /// [`FilterExpressionError`] if the text is not an expression, or describes a filter that is
    /// not permitted.
    pub fn parse(text: &str, names: &EventNames, limits: &FilterLimits) -> Result<Self, FilterExpressionError> {
        if text.len() > MAX_BYTES {
            let reason = format!("the expression is longer than {MAX_BYTES} bytes");
            return Err(FilterExpressionError::Malformed { column: 1, reason });
        }
        let mut parser = Parser { tokens: tokens(text)?, next: 0, end: text.chars().count() + 1, depth: 0, names };
        let headers = parser.alternatives()?;
        if let Some(token) = parser.tokens.get(parser.next) {
            return Err(malformed(token.column, format!("expected `and`, `or` or the end, not {}", token.kind)));
        }
        Self::build(FilterBuilder::Prefix, &headers, limits).map_err(FilterExpressionError::Refused)
    }

    /// Returns the filter as an expression.
    #[must_use]
    pub fn expression(&self, names: &EventNames) -> String {
        if self.nodes().is_empty() { "or()".to_owned() } else { self.expression_at(0, names) }
    }

    pub(super) fn expression_at(&self, at: usize, names: &EventNames) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_expression(&mut text, at, names);
        text
    }

    fn write_expression(&self, out: &mut String, at: usize, names: &EventNames) -> fmt::Result {
        let children: Vec<usize> = self.children(at).collect();
        match self.nodes()[at].kind {
            NodeKind::Type { event_type, source } => write_type(out, (event_type, source), names),
            NodeKind::MaskedType { type_mask, source_mask, event_type, source } => {
                let has_source = (source_mask, source) != (0, 0);
                let has_type = (type_mask, event_type) != (0, 0) || !has_source;
                if has_type {
                    write!(out, "type & {type_mask:#x} = {event_type:#x}")?;
                }
                if has_source {
                    let separator = if has_type { " " } else { "" };
                    write!(out, "{separator}source & {source_mask:#x} = {source:#x}")?;
                }
                Ok(())
            }
            NodeKind::Null => out.write_str("any"),
            NodeKind::Timeout { kind, delay } => {
                let word = match kind {
                    TimeoutKind::Once => "timeout",
                    TimeoutKind::Interval => "interval",
                    TimeoutKind::Deadline => "deadline",
                };
                write!(out, "{word} {}", format_time(delay))
            }
            NodeKind::Conjunction { .. } => self.write_list(out, "all", &children, names),
            NodeKind::Disjunction if children.len() < 2 => self.write_list(out, "or", &children, names),
            NodeKind::LogicalAnd if children.len() < 2 => self.write_list(out, "and", &children, names),
            NodeKind::Disjunction => self.write_operands(out, " or ", &children, names),
            NodeKind::LogicalAnd => self.write_operands(out, " and ", &children, names),
            NodeKind::Negation => {
                out.write_str("not ")?;
                self.write_operand(out, at + 1, names, true)
            }
            NodeKind::Bitmask { type_mask, source_mask } => {
                write!(out, "bits({type_mask:#x}, {source_mask:#x}) ")?;
                self.write_operand(out, at + 1, names, true)
            }
        }
    }

    fn write_list(&self, out: &mut String, word: &str, children: &[usize], names: &EventNames) -> fmt::Result {
        write!(out, "{word}(")?;
        for (number, child) in children.iter().enumerate() {
            out.write_str(if number == 0 { "" } else { ", " })?;
            self.write_expression(out, *child, names)?;
        }
        out.write_char(')')
    }

    fn write_operands(&self, out: &mut String, word: &str, children: &[usize], names: &EventNames) -> fmt::Result {
        for (number, child) in children.iter().enumerate() {
            out.write_str(if number == 0 { "" } else { word })?;
            self.write_operand(out, *child, names, word == " and ")?;
        }
        Ok(())
    }

    /// Writes an operand, in parentheses if it binds less closely than the operator around it.
    /// `is_close` is false for operands of `or`.
    fn write_operand(&self, out: &mut String, at: usize, names: &EventNames, is_close: bool) -> fmt::Result {
        let needs = match self.nodes()[at].kind {
            NodeKind::Disjunction => true,
            NodeKind::LogicalAnd => is_close,
            _ => false,
        };
        if !needs || self.children(at).count() < 2 {
            return self.write_expression(out, at, names);
        }
        out.write_char('(')?;
        self.write_expression(out, at, names)?;
        out.write_char(')')
    }
}

fn write_type(out: &mut String, (event_type, source): (i32, i32), names: &EventNames) -> fmt::Result {
    let type_text = names.type_text(EventType(event_type));
    match (event_type, source) {
        (0, 0) => return out.write_str("type 0"),
        (0, _) => {}
        _ if EventNames::is_name(&type_text) => out.write_str(&type_text)?,
        _ => write!(out, "type {type_text}")?,
    }
    let source_text = names.source_text(EventSource(source));
    match (event_type, source) {
        (_, 0) => Ok(()),
        (0, _) => write!(out, "source {source_text}"),
        _ => write!(out, " source {source_text}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind<'t> {
    Word(&'t str),
    Number(&'t str),
    Sign(char),
}

impl fmt::Display for TokenKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Number(text) => {
                write!(f, "`{}`", text.chars().take(40).collect::<String>())
            }
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Token<'t> {
    /// The place in the text: the number of the character, counted from 1.
    column: usize,
    kind: TokenKind<'t>,
}

fn malformed(column: usize, reason: impl Into<String>) -> FilterExpressionError {
    FilterExpressionError::Malformed { column, reason: reason.into() }
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterExpressionError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let kind = match first {
            space if space.is_whitespace() => {
                rest = &rest[space.len_utf8()..];
                column += 1;
                continue;
            }
            '(' | ')' | ',' | '&' | '=' => TokenKind::Sign(first),
            '-' | '0'..='9' => {
                let sign = usize::from(first == '-');
                let digits = rest[sign..].find(|it: char| !it.is_ascii_alphanumeric() && it != '.');
                TokenKind::Number(&rest[..digits.map_or(rest.len(), |digits| sign + digits)])
            }
            letter if letter.is_ascii_alphabetic() || letter == '_' => {
                let end = rest.find(|it: char| !is_in_name(it)).unwrap_or(rest.len());
                TokenKind::Word(&rest[..end])
            }
            other => {
                return Err(malformed(column, format!("`{}` is not part of an expression", other.escape_default())));
            }
        };
        let length = match kind {
            TokenKind::Word(text) | TokenKind::Number(text) => text.len(),
            TokenKind::Sign(_) => 1,
        };
        tokens.push(Token { column, kind });
        // Tokens consist of ASCII characters, so a token has as many characters as bytes.
        rest = &rest[length..];
        column += length;
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    next: usize,
    end: usize,
    depth: usize,
    names: &'t EventNames,
}

type Parsed = Result<Vec<EventHeader>, FilterExpressionError>;

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<TokenKind<'t>> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    fn column(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |token| token.column)
    }

    fn take_if(&mut self, kind: TokenKind<'_>) -> bool {
        let is_found = self.peek() == Some(kind);
        self.next += usize::from(is_found);
        is_found
    }

    fn refuse<T>(&self, expected: &str) -> Result<T, FilterExpressionError> {
        let found = self.peek().map_or_else(|| "the end".to_owned(), |kind| kind.to_string());
        Err(malformed(self.column(), format!("expected {expected}, not {found}")))
    }

    fn expect(&mut self, sign: char) -> Result<(), FilterExpressionError> {
        if self.take_if(TokenKind::Sign(sign)) { Ok(()) } else { self.refuse(&format!("`{sign}`")) }
    }

    fn alternatives(&mut self) -> Parsed {
        self.chain("or", Designator::Disjunction, Self::conditions)
    }

    fn conditions(&mut self) -> Parsed {
        self.chain("and", Designator::LogicalAnd, Self::operand)
    }

    fn chain(&mut self, word: &str, head: Designator, operand: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let first = operand(self)?;
        let mut operands = Vec::new();
        while self.take_if(TokenKind::Word(word)) {
            operands.push(operand(self)?);
        }
        if operands.is_empty() {
            return Ok(first);
        }
        operands.insert(0, first);
        Ok(group(head, &operands))
    }

    fn operand(&mut self) -> Parsed {
        if self.depth == MAX_DEPTH {
            return Err(malformed(self.column(), format!("more than {MAX_DEPTH} expressions inside each other")));
        }
        self.depth += 1;
        let parsed = self.unlimited_operand();
        self.depth -= 1;
        parsed
    }

    fn unlimited_operand(&mut self) -> Parsed {
        if self.take_if(TokenKind::Sign('(')) {
            let inner = self.alternatives()?;
            self.expect(')')?;
            return Ok(inner);
        }
        let Some(TokenKind::Word(word)) = self.peek() else { return self.refuse("a filter") };
        let column = self.column();
        self.next += 1;
        Ok(match word {
            "any" => vec![EventHeader::new(Designator::Null.event_type(), EventSource(0))],
            "not" => {
                let head = EventHeader::new(Designator::Negation.event_type(), EventSource(0));
                [vec![head], self.operand()?].concat()
            }
            "all" => self.list(Designator::Conjunction)?,
            "or" => self.list(Designator::Disjunction)?,
            "and" => self.list(Designator::LogicalAnd)?,
            "bits" => {
                self.expect('(')?;
                let types = self.number("a mask of types")?;
                self.expect(',')?;
                let sources = self.number("a mask of sources")?;
                self.expect(')')?;
                let masks = DependencySet::new().bitmask(sources, types);
                [masks.headers().to_vec(), self.operand()?].concat()
            }
            "timeout" => self.timeout(TimeoutKind::Once)?,
            "interval" => self.timeout(TimeoutKind::Interval)?,
            "deadline" => self.timeout(TimeoutKind::Deadline)?,
            "type" if self.take_if(TokenKind::Sign('&')) => {
                let (type_mask, event_type) = self.masked()?;
                let has_source = self.take_if(TokenKind::Word("source"));
                let (source_mask, source) = if has_source {
                    self.expect('&')?;
                    self.masked()?
                } else {
                    (0, 0)
                };
                DependencySet::new().masked_type(source_mask, type_mask, source, event_type).headers().to_vec()
            }
            "source" if self.take_if(TokenKind::Sign('&')) => {
                let (source_mask, source) = self.masked()?;
                DependencySet::new().masked_type(source_mask, 0, source, 0).headers().to_vec()
            }
            "type" => {
                let event_type = self.type_value()?;
                self.typed(event_type)?
            }
            "source" => vec![EventHeader::new(EventType::ANY, self.source_value()?)],
            name => match (self.names.event_type(name), self.names.source(name)) {
                (Some(event_type), _) => self.typed(event_type)?,
                (None, Some(source)) => vec![EventHeader::new(EventType::ANY, source)],
                (None, None) => {
                    let name = TokenKind::Word(name);
                    return Err(malformed(column, format!("{name} is neither a type nor a source")));
                }
            },
        })
    }

    fn typed(&mut self, event_type: EventType) -> Parsed {
        let has_source = self.take_if(TokenKind::Word("source"));
        let source = if has_source { self.source_value()? } else { EventSource::ANY };
        // A designator as a type would change the meaning of the dependencies after it.
        if Designator::from_type(event_type).is_some() || event_type == Designator::UNASSIGNED {
            return Err(malformed(self.column(), format!("the number {} is not a type of events", event_type.0)));
        }
        Ok(vec![EventHeader::new(event_type, source)])
    }

    fn list(&mut self, head: Designator) -> Parsed {
        self.expect('(')?;
        let mut children = Vec::new();
        while !self.take_if(TokenKind::Sign(')')) {
            if !children.is_empty() {
                self.expect(',')?;
            }
            children.push(self.alternatives()?);
        }
        Ok(group(head, &children))
    }

    fn timeout(&mut self, kind: TimeoutKind) -> Parsed {
        let Some(TokenKind::Number(text)) = self.peek() else { return self.refuse("a time such as 50ms") };
        let time = parse_time(text).map_err(|error| malformed(self.column(), error.to_string()))?;
        if !time.is_multiple_of(TIME_UNIT) {
            return Err(malformed(self.column(), format!("the time is not a multiple of {TIME_UNIT} ns")));
        }
        self.next += 1;
        Ok(DependencySet::new().timeout(kind, time / TIME_UNIT).headers().to_vec())
    }

    fn masked(&mut self) -> Result<(i32, i32), FilterExpressionError> {
        let mask = self.number("a mask")?;
        self.expect('=')?;
        Ok((mask, self.number("a value")?))
    }

    fn type_value(&mut self) -> Result<EventType, FilterExpressionError> {
        if let Some(TokenKind::Word(name)) = self.peek() {
            let Some(event_type) = self.names.event_type(name) else { return self.refuse("a type") };
            self.next += 1;
            return Ok(event_type);
        }
        self.number("a type").map(EventType)
    }

    fn source_value(&mut self) -> Result<EventSource, FilterExpressionError> {
        if let Some(TokenKind::Word(name)) = self.peek() {
            let Some(source) = self.names.source(name) else { return self.refuse("a source") };
            self.next += 1;
            return Ok(source);
        }
        self.number("a source").map(EventSource)
    }

    fn number(&mut self, expected: &str) -> Result<i32, FilterExpressionError> {
        let Some(TokenKind::Number(text)) = self.peek() else { return self.refuse(expected) };
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok().map(u32::cast_signed),
            None => text.parse().ok(),
        };
        let Some(number) = parsed else { return self.refuse("a number of 32 bits") };
        self.next += 1;
        Ok(number)
    }
}

fn group(head: Designator, children: &[Vec<EventHeader>]) -> Vec<EventHeader> {
    // The length of an expression bounds the number of its parts, so the number fits.
    let count = i32::try_from(children.len()).unwrap_or(i32::MAX);
    let mut headers = vec![EventHeader::new(head.event_type(), EventSource(count))];
    headers.extend(children.iter().flatten());
    headers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> EventNames {
        let mut names = EventNames::new();
        names.add_type("inertial", EventType(16));
        names.add_type("position", EventType(17));
        names.add_source("imu", EventSource(1));
        names.add_source("gps-2", EventSource(2));
        names
    }

    fn parse(text: &str) -> Result<EventFilter, FilterExpressionError> {
        EventFilter::parse(text, &names(), &FilterLimits::default())
    }

    #[test]
    fn expressions_describe_the_filters_of_their_dependency_sets() {
        let set = DependencySet::new;
        let (a, b, any) = (EventType(16), EventType(17), EventSource::ANY);
        let cases = [
            ("inertial", set().event(a, any)),
            ("type 16", set().event(a, any)),
            ("inertial source gps-2", set().event(a, EventSource(2))),
            ("type 0x12 source -7", set().event(EventType(18), EventSource(-7))),
            ("imu", set().event(EventType::ANY, EventSource(1))),
            ("source 0", set().event(EventType::ANY, any)),
            ("any", set().every_event()),
            ("or()", set()),
            ("not inertial", set().negation().event(a, any)),
            ("inertial or position", set().disjunction(2).event(a, any).event(b, any)),
            (
                "inertial and not imu",
                set().logical_and(2).event(a, any).negation().event(EventType::ANY, EventSource(1)),
            ),
            (
                "all(inertial, position,type 3)",
                set().conjunction(3).event(a, any).event(b, any).event(EventType(3), any),
            ),
            (
                "inertial or any and position or imu",
                set()
                    .disjunction(3)
                    .event(a, any)
                    .logical_and(2)
                    .every_event()
                    .event(b, any)
                    .event(EventType::ANY, EventSource(1)),
            ),
            (
                "(inertial or position) and imu",
                set().logical_and(2).disjunction(2).event(a, any).event(b, any).event(EventType::ANY, EventSource(1)),
            ),
            ("type & 0xff = 0x10 source & 1 = 1", set().masked_type(1, 0xff, 1, 0x10)),
            ("source & 0xffffffff = 2", set().masked_type(-1, 0, 2, 0)),
            ("bits(0xf0, -1) inertial", set().bitmask(-1, 0xf0).event(a, any)),
            (
                "interval 50ms or deadline 1s or timeout 2.5us",
                set()
                    .disjunction(3)
                    .timeout(TimeoutKind::Interval, 500_000)
                    .timeout(TimeoutKind::Deadline, 10_000_000)
                    .timeout(TimeoutKind::Once, 25),
            ),
        ];
        let limits = FilterLimits { min_period: 0, ..FilterLimits::default() };
        for (text, set) in cases {
            let expected = EventFilter::build(FilterBuilder::Prefix, set.headers(), &limits).unwrap();
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn wrong_expressions_are_refused_with_their_place() {
        let deep = "(".repeat(300);
        let long = "not ".repeat(20_000);
        let cases = [
            ("", "column 1: expected a filter, not the end"),
            ("inertial position", "column 10: expected `and`, `or` or the end, not `position`"),
            ("inertial or", "column 12: expected a filter, not the end"),
            ("speed", "column 1: `speed` is neither a type nor a source"),
            ("type imu", "column 6: expected a type, not `imu`"),
            ("inertial source 9x", "column 17: expected a number of 32 bits, not `9x`"),
            ("type 4294967296", "column 6: expected a number of 32 bits, not `4294967296`"),
            ("type 8", "column 7: the number 8 is not a type of events"),
            ("all(inertial, )", "column 15: expected a filter, not `)`"),
            ("all(inertial", "column 13: expected `,`, not the end"),
            ("all()", "dependency 0: the group has no children"),
            ("interval 5", "column 10: expected a time such as \"3ms\" or \"250us\", in ns, us, ms or s"),
            ("interval 50ns", "column 10: the time is not a multiple of 100 ns"),
            ("interval 1us", "dependency 0: the shortest period is 100000 ns"),
            ("inertial § imu", "column 10: `\\u{a7}` is not part of an expression"),
            ("bits(1) any", "column 7: expected `,`, not `)`"),
            (&deep, "column 257: more than 256 expressions inside each other"),
            (&long, "column 1: the expression is longer than 65536 bytes"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{}", text.chars().take(40).collect::<String>());
        }
    }

    fn filters() -> impl Strategy<Value = Vec<EventHeader>> {
        let value = prop_oneof![Just(0), 16..19, Just(-1), any::<i32>()];
        let leaf = prop_oneof![
                (16..20, 0..3).prop_map(
                    |(event_type, source)| DependencySet::new().event(EventType(event_type), EventSource(source))
                ),
                (0..4, any::<i32>()).prop_map(
                    |(event_type, source)| DependencySet::new().event(EventType(event_type), EventSource(source))
                ),
                (value.clone(), value.clone(), value.clone(), value)
                    .prop_map(|(a, b, c, d)| DependencySet::new().masked_type(a, b, c, d)),
                Just(DependencySet::new().every_event()),
                (1_000..u64::from(u32::MAX))
                    .prop_map(|delay| DependencySet::new().timeout(TimeoutKind::Interval, delay)),
                (0..u64::from(u32::MAX)).prop_map(|delay| DependencySet::new().timeout(TimeoutKind::Once, delay)),
            ];
        let leaf = leaf.prop_map(|set| set.headers().to_vec());
        leaf.prop_recursive(5, 40, 4, |inner| {
            let heads =
                prop::sample::select(vec![Designator::Conjunction, Designator::Disjunction, Designator::LogicalAnd]);
            prop_oneof![
                (heads, prop::collection::vec(inner.clone(), 1..4)).prop_map(|(head, children)| group(head, &children)),
                inner.clone().prop_map(|child| [DependencySet::new().negation().headers().to_vec(), child].concat()),
                (any::<i32>(), any::<i32>(), inner).prop_map(|(a, b, child)| [
                    DependencySet::new().bitmask(a, b).headers().to_vec(),
                    child
                ]
                .concat()),
            ]
        })
    }

    proptest! {
        #[test]
        fn filter_that_is_written_is_read_as_the_same_filter(headers in filters()) {
            let filter = EventFilter::build(FilterBuilder::Prefix, &headers, &FilterLimits::default()).unwrap();
            let text = filter.expression(&names());
            prop_assert_eq!(parse(&text), Ok(filter), "{}", text);
        }

        #[test]
        fn no_text_leads_to_a_panic(text in "([a-z0-9]{1,3}|[ ()&=,§-]|type |or |all\\(|not |bits\\(|interval |0x){0,20}") {
            let _ = parse(&text);
        }
    }
}
