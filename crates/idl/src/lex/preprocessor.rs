//! The preprocessor: conditions, inclusion and macros, on tokens.
//!
//! Pragmas, comments, and the beginnings and ends of included files have the index of the following
//! token, which places them in the list of tokens.

use super::condition;
use super::macros::{Macro, spelling};
use super::scanner::{Comment, ScanFindings, ScanPosition, Scanner};
use super::token::{Punctuation, Token, TokenKind};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::limits::CompilerLimits;
use crate::source::{FileId, SourceMap, Span};
use crate::symbol::{Symbol, SymbolMap, Symbols};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

mod expansion;

/// A source of included files.
pub trait FileSource {
    /// Returns the content of a file, or `None` if the file cannot be read.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;

    /// Returns a path that is equal for all paths that lead to one file. By default, links are not
    /// followed.
    fn identity(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                    plain.pop();
                }
                part => plain.push(part),
            }
        }
        plain
    }
}

/// A source of included files without any file.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl FileSource for NoFiles {
    fn read(&self, _: &Path) -> Option<Vec<u8>> {
        None
    }
}

#[derive(Debug, Default)]
pub(crate) struct Preprocessed {
    pub(crate) tokens: Vec<Token>,
    pub(crate) events: Vec<(usize, PreprocessorEvent)>,
    pub(crate) comments: Vec<(usize, Comment)>,
}

#[derive(Clone, Debug)]
pub(crate) enum PreprocessorEvent {
    Enter,
    Leave,
    Pragma(Span, Vec<Token>),
}

pub(crate) struct PreprocessorInputs<'e> {
    pub(crate) include: &'e [PathBuf],
    pub(crate) defines: &'e [String],
    pub(crate) limits: &'e CompilerLimits,
    pub(crate) files: &'e dyn FileSource,
    pub(crate) sources: &'e mut SourceMap,
    pub(crate) symbols: &'e mut Symbols,
    pub(crate) diagnostics: &'e mut Diagnostics,
}

pub(crate) fn preprocess(environment: PreprocessorInputs<'_>, path: &Path, text: Vec<u8>) -> Preprocessed {
    let names = SpecialNames::new(environment.symbols);
    let mut preprocessor = Preprocessor {
        environment,
        names,
        macros: SymbolMap::default(),
        identities: HashMap::new(),
        known: HashMap::new(),
        guards: HashMap::new(),
        frames: Vec::new(),
        expansions: Vec::new(),
        active: HashSet::new(),
        found: ScanFindings::default(),
        output: Preprocessed::default(),
        inclusions: 0,
        expanded: 0,
        nesting: 0,
    };
    preprocessor.run(path, text);
    preprocessor.output
}

/// The predefined macros with a constant value. IDL files of CORBA services test `__OMNIIDL__` to
/// detect compilers that support escaped identifiers. Date and time are constant, so that one text
/// always leads to the same code.
const OWN: [(&str, TokenKind, &str); 5] = [
    ("__CORELANE_IDL__", TokenKind::Number, "1"),
    ("__OMNIIDL__", TokenKind::Number, "1"),
    ("__STDC__", TokenKind::Number, "1"),
    ("__DATE__", TokenKind::String, "\"Jan  1 1970\""),
    ("__TIME__", TokenKind::String, "\"00:00:00\""),
];

struct SpecialNames {
    defined: Symbol,
    variadic: Symbol,
    file: Symbol,
    line: Symbol,
    pragma: Symbol,
    directive: Symbol,
    one: Symbol,
    zero: Symbol,
}

impl SpecialNames {
    fn new(symbols: &mut Symbols) -> Self {
        Self {
            defined: symbols.intern("defined"),
            variadic: symbols.intern("__VA_ARGS__"),
            file: symbols.intern("__FILE__"),
            line: symbols.intern("__LINE__"),
            pragma: symbols.intern("_Pragma"),
            directive: symbols.intern("directive"),
            one: symbols.intern("1"),
            zero: symbols.intern("0"),
        }
    }
}

struct Frame {
    path: PathBuf,
    identity: PathBuf,
    text: Arc<str>,
    base: u32,
    position: ScanPosition,
    conditions: Vec<IfSection>,
    guard: Guard,
}

struct IfSection {
    span: Span,
    outer: bool,
    taken: bool,
    live: bool,
    seen_else: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    Start,
    Inside(Symbol),
    Closed(Symbol),
    Absent,
}

/// Tokens of a macro or of an argument, to be read before the unread text of the file.
struct Expansion {
    tokens: Arc<[Token]>,
    next: usize,
    of: Option<Symbol>,
    /// True for the expansion of an argument or a directive: reading stops at its end.
    barrier: bool,
}

struct Preprocessor<'e> {
    environment: PreprocessorInputs<'e>,
    names: SpecialNames,
    macros: SymbolMap<Macro>,
    identities: HashMap<PathBuf, PathBuf>,
    known: HashMap<PathBuf, FileId>,
    /// The include guards of files, by identity. A file is skipped while its guard is defined.
    guards: HashMap<PathBuf, Symbol>,
    frames: Vec<Frame>,
    expansions: Vec<Expansion>,
    /// The macros whose expansion is being read, which are not expanded again.
    active: HashSet<Symbol>,
    found: ScanFindings,
    output: Preprocessed,
    inclusions: usize,
    expanded: usize,
    nesting: usize,
}

impl Preprocessor<'_> {
    fn run(&mut self, path: &Path, text: Vec<u8>) {
        if text.len() > self.environment.limits.max_file_size {
            self.environment.sources.add(path, Vec::new());
            let message = format!("the file is larger than {} octets", self.environment.limits.max_file_size);
            self.report(Diagnostic::error(Span::default(), message));
            return;
        }
        let Some(main) = self.environment.sources.add(path, text) else {
            self.environment.sources.add(path, Vec::new());
            self.report(Diagnostic::error(Span::default(), "the file is larger than 1 GiB"));
            return;
        };
        let identity = self.identity(path);
        self.known.insert(identity.clone(), main);
        self.output.tokens.reserve(self.environment.sources.file(main).text.len() / 6);
        self.define_given();
        self.enter(path.to_owned(), identity, main);
        loop {
            let (token, from_file) = self.next_of_interest();
            if token.kind == TokenKind::End {
                if self.leave() {
                    self.output.tokens.push(token);
                    break;
                }
            } else if from_file && token.starts_line && token.is(Punctuation::Hash) {
                self.directive();
            } else if self.is_live() && !self.expand(&token) {
                if token.kind == TokenKind::Unknown {
                    self.report_unknown(&token);
                }
                self.output.tokens.push(token);
            }
            if self.environment.diagnostics.is_full() || self.expanded > self.environment.limits.max_expanded_tokens {
                self.stop(token);
                break;
            }
        }
    }

    fn stop(&mut self, last: Token) {
        self.take_findings();
        self.output.tokens.push(Token { kind: TokenKind::End, text: Symbol::EMPTY, ..last });
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.environment.diagnostics.push(diagnostic);
    }

    fn report_unknown(&mut self, token: &Token) {
        let text = self.environment.symbols.text(token.text);
        let shown: String = text.chars().take(40).collect();
        let diagnostic = if text.starts_with(char::is_alphabetic) {
            Diagnostic::error(token.span, format!("`{shown}` is not allowed in a name"))
                .note("names consist of the letters A to Z and a to z, digits and `_`")
        } else {
            Diagnostic::error(token.span, format!("no token of IDL begins with `{}`", shown.escape_debug()))
        };
        self.report(diagnostic);
    }

    fn define_given(&mut self) {
        for (name, kind, value) in OWN {
            let symbols = &mut *self.environment.symbols;
            let text = symbols.intern(value);
            let token = Token { kind, text, starts_line: false, spaced: true, painted: false, span: Span::default() };
            self.macros.insert(symbols.intern(name), Macro::object(vec![token]));
        }
        self.macros.insert(self.names.pragma, Macro::function(vec![self.names.directive], false, &[]));
        if self.environment.defines.is_empty() {
            return;
        }
        let mut text = String::new();
        for define in self.environment.defines {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            text.push_str(&format!("#define {} {}\n", name.replace('\n', " "), value.replace('\n', " ")));
        }
        let path = Path::new("<command line>");
        let Some(file) = self.environment.sources.add(path, text.into_bytes()) else { return };
        self.enter(path.to_owned(), path.to_owned(), file);
        while self.next_token().0.is(Punctuation::Hash) {
            self.directive();
        }
        self.frames.clear();
    }

    fn next_token(&mut self) -> (Token, bool) {
        while let Some(expansion) = self.expansions.last_mut() {
            if let Some(token) = expansion.tokens.get(expansion.next) {
                expansion.next += 1;
                return (*token, false);
            }
            if expansion.barrier {
                let kind = TokenKind::End;
                let token = Token {
                    kind,
                    starts_line: true,
                    spaced: false,
                    painted: false,
                    text: Symbol::EMPTY,
                    span: Span::default(),
                };
                return (token, false);
            }
            self.pop_expansion();
        }
        let skipping = !self.is_live();
        let Some(frame) = self.frames.last_mut() else {
            let kind = TokenKind::End;
            let token = Token {
                kind,
                starts_line: true,
                spaced: false,
                painted: false,
                text: Symbol::EMPTY,
                span: Span::default(),
            };
            return (token, true);
        };
        self.found.skipping = skipping;
        let mut scanner = Scanner::new(&frame.text, frame.base, frame.position);
        let token = scanner.next(self.environment.symbols, &mut self.found);
        frame.position = scanner.position();
        if frame.guard == Guard::Start && !token.is(Punctuation::Hash)
            || matches!(frame.guard, Guard::Closed(_)) && token.kind != TokenKind::End
        {
            frame.guard = Guard::Absent;
        }
        self.take_findings();
        (token, true)
    }

    /// Copies tokens that need no preprocessing to the output, and returns the next token.
    fn next_of_interest(&mut self) -> (Token, bool) {
        let plain = |frame: &&mut Frame| matches!(frame.guard, Guard::Inside(_) | Guard::Absent);
        if !self.expansions.is_empty() || !self.is_live() {
            return self.next_token();
        }
        let Some(frame) = self.frames.last_mut().filter(plain) else { return self.next_token() };
        self.found.skipping = false;
        let mut scanner = Scanner::new(&frame.text, frame.base, frame.position);
        let output = &mut self.output;
        let last = loop {
            let token = scanner.next(self.environment.symbols, &mut self.found);
            if !self.found.comments.is_empty() {
                let next = output.tokens.len();
                output.comments.extend(self.found.comments.drain(..).map(|comment| (next, comment)));
            }
            let interesting = match token.kind {
                TokenKind::Identifier => {
                    self.macros.contains_key(&token.text)
                        || token.text == self.names.file
                        || token.text == self.names.line
                }
                TokenKind::Punctuation(mark) => mark == Punctuation::Hash && token.starts_line,
                TokenKind::End | TokenKind::Unknown => true,
                _ => !self.found.diagnostics.is_empty(),
            };
            if interesting {
                break token;
            }
            output.tokens.push(token);
        };
        frame.position = scanner.position();
        self.take_findings();
        (last, true)
    }

    fn take_findings(&mut self) {
        let next = self.output.tokens.len();
        self.output.comments.extend(self.found.comments.drain(..).map(|comment| (next, comment)));
        for diagnostic in self.found.diagnostics.drain(..) {
            self.environment.diagnostics.push(diagnostic);
        }
    }

    fn line(&mut self) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.found.skipping = !self.is_live();
        while let Some(frame) = self.frames.last_mut() {
            let mut scanner = Scanner::new(&frame.text, frame.base, frame.position);
            let (comments, diagnostics) = (self.found.comments.len(), self.found.diagnostics.len());
            let token = scanner.next(self.environment.symbols, &mut self.found);
            if token.starts_line
                && (token.kind == TokenKind::End || !(tokens.is_empty() && frame.position.starts_line()))
            {
                self.found.comments.truncate(comments);
                self.found.diagnostics.truncate(diagnostics);
                break;
            }
            frame.position = scanner.position();
            tokens.push(token);
        }
        self.found.comments.clear();
        tokens
    }

    fn is_live(&self) -> bool {
        self.frames.last().is_none_or(|frame| frame.conditions.last().is_none_or(|condition| condition.live))
    }

    fn identity(&mut self, path: &Path) -> PathBuf {
        if let Some(known) = self.identities.get(path) {
            return known.clone();
        }
        let identity = self.environment.files.identity(path);
        self.identities.insert(path.to_owned(), identity.clone());
        identity
    }

    fn enter(&mut self, path: PathBuf, identity: PathBuf, file: FileId) {
        let source = self.environment.sources.file(file);
        let (text, base) = (Arc::clone(&source.text), source.start_position());
        let (position, conditions, guard) = (ScanPosition::START, Vec::new(), Guard::Start);
        self.frames.push(Frame { path, identity, text, base, position, conditions, guard });
    }

    fn leave(&mut self) -> bool {
        let Some(frame) = self.frames.pop() else { return true };
        for condition in &frame.conditions {
            self.report(Diagnostic::error(condition.span, "a condition has no `#endif`").label("begins here"));
        }
        if let Guard::Closed(name) = frame.guard {
            self.guards.insert(frame.identity, name);
        }
        if !self.frames.is_empty() {
            self.output.events.push((self.output.tokens.len(), PreprocessorEvent::Leave));
        }
        self.frames.is_empty()
    }

    fn directive(&mut self) {
        let before = self.frames.last().map(|frame| frame.position);
        let line = self.line();
        let Some(name) = line.first().copied() else { return self.take_findings() };
        let rest = &line[1..];
        let text = self.environment.symbols.text(name.text).to_owned();
        let starts = self.frames.last().is_some_and(|frame| frame.guard == Guard::Start);
        if starts
            && text != "ifndef"
            && let Some(frame) = self.frames.last_mut()
        {
            frame.guard = Guard::Absent;
        }
        // The text after these directives may be prose, so it causes no errors.
        if matches!(text.as_str(), "pragma" | "error" | "warning" | "ident" | "sccs") {
            self.found.diagnostics.clear();
        }
        self.take_findings();
        match text.as_str() {
            "if" | "ifdef" | "ifndef" => self.open_condition(&text, name.span, rest, starts),
            "elif" | "else" | "endif" => self.turn_condition(&text, name.span, rest),
            _ if !self.is_live() => {}
            "include" => {
                let (path, span, system) = match self.include_name(rest, before) {
                    Some(name) => name,
                    None => {
                        let span = rest.first().map_or(name.span, |token| token.span);
                        let message = "`#include` needs a file name in quotes or angle brackets";
                        return self.report(Diagnostic::error(span, message).help("write `#include \"file.idl\"`"));
                    }
                };
                self.include(&path, span, system);
            }
            "define" => match rest.first() {
                Some(first) if first.kind == TokenKind::Identifier => {
                    self.define_macro(first.text, first.span, &rest[1..])
                }
                _ => self.report(Diagnostic::error(name.span, "`#define` needs a name")),
            },
            "undef" => match rest.first() {
                Some(first) if first.kind == TokenKind::Identifier => {
                    self.macros.remove(&first.text);
                    self.check_alone("undef", rest);
                }
                _ => self.report(Diagnostic::error(name.span, "`#undef` needs a name")),
            },
            "error" | "warning" => {
                let said = self.words(rest);
                let message = if said.is_empty() { format!("`#{text}`") } else { format!("`#{text}` says: {said}") };
                let span =
                    rest.first().zip(rest.last()).map_or(name.span, |(first, last)| first.span.to_end_of(last.span));
                let diagnostic =
                    if text == "error" { Diagnostic::error(span, message) } else { Diagnostic::warning(span, message) };
                self.report(diagnostic);
            }
            "line" => self.line_directive(name.span, rest),
            _ if name.kind == TokenKind::Number => self.line_directive(name.span, &line),
            "pragma" => self.pragma(name.span, rest.to_vec()),
            "ident" | "sccs" => {}
            _ => {
                let known =
                    "include, define, undef, if, ifdef, ifndef, elif, else, endif, error, warning, line, pragma";
                let message = format!("there is no directive `#{}`", spelling(&name, self.environment.symbols));
                self.report(Diagnostic::error(name.span, message).note(format!("the directives are {known}")));
            }
        }
    }

    fn words(&self, tokens: &[Token]) -> String {
        let mut words = String::new();
        for token in tokens {
            if token.spaced && !words.is_empty() {
                words.push(' ');
            }
            words.push_str(&spelling(token, self.environment.symbols));
        }
        words
    }

    fn pragma(&mut self, span: Span, tokens: Vec<Token>) {
        let once = tokens.first().is_some_and(|first| self.environment.symbols.text(first.text) == "once");
        self.output.events.push((self.output.tokens.len(), PreprocessorEvent::Pragma(span, tokens)));
        if once {
            self.guard_once();
        }
    }

    /// Handles `#pragma once`: defines an include guard with a name that is impossible in IDL.
    fn guard_once(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let name = self.environment.symbols.intern(&format!("#once {}", frame.identity.display()));
        self.macros.insert(name, Macro::object(Vec::new()));
        self.guards.insert(frame.identity.clone(), name);
    }

    fn line_directive(&mut self, span: Span, tokens: &[Token]) {
        let tokens = self.expand_list(tokens.to_vec());
        let number = tokens.first().and_then(|token| self.environment.symbols.text(token.text).parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number <= i32::MAX.unsigned_abs()) else {
            return self.report(Diagnostic::error(span, "`#line` needs a line number of at most 2147483647"));
        };
        let number = number as usize;
        let path = tokens.get(1).filter(|token| token.kind == TokenKind::String);
        let path = path.map(|token| PathBuf::from(self.environment.symbols.text(token.text).trim_matches('"')));
        self.environment.sources.mark_line(span, number, path);
    }

    fn open_condition(&mut self, kind: &str, span: Span, rest: &[Token], starts: bool) {
        let outer = self.is_live();
        if outer && kind != "if" {
            self.check_alone(kind, rest);
        }
        let live = outer
            && match (kind, rest.first()) {
                ("if", _) => self.condition(span, rest),
                (_, Some(name)) if name.kind == TokenKind::Identifier => {
                    self.is_defined(name.text) == (kind == "ifdef")
                }
                _ => {
                    self.report(Diagnostic::error(span, format!("`#{kind}` needs a name")));
                    false
                }
            };
        let Some(frame) = self.frames.last_mut() else { return };
        frame.conditions.push(IfSection { span, outer, taken: live, live, seen_else: false });
        if starts && let ("ifndef", Some(name)) = (kind, rest.first()) {
            frame.guard = Guard::Inside(name.text);
        }
    }

    fn check_alone(&mut self, directive: &str, rest: &[Token]) {
        if let [_, next, ..] = rest {
            let warning = Diagnostic::warning(
                next.span,
                format!("`#{directive}` takes one name; the rest of the line has no effect"),
            );
            let condition = matches!(directive, "ifdef" | "ifndef");
            self.report(if condition {
                warning.help("write `#if` with `defined(NAME)` for more than one")
            } else {
                warning
            });
        }
    }

    fn turn_condition(&mut self, kind: &str, span: Span, rest: &[Token]) {
        let top = self.frames.last().and_then(|frame| frame.conditions.last());
        let Some((outer, taken, seen_else, opened)) = top.map(|top| (top.outer, top.taken, top.seen_else, top.span))
        else {
            return self.report(
                Diagnostic::error(span, format!("`#{kind}` without a condition before it"))
                    .help("a condition begins with `#if`, `#ifdef` or `#ifndef`"),
            );
        };
        if seen_else && kind != "endif" {
            self.report(
                Diagnostic::error(span, format!("`#{kind}` after `#else`")).related(opened, "of this condition"),
            );
        }
        let live = match kind {
            "elif" => outer && !taken && self.condition(span, rest),
            _ => outer && !taken,
        };
        let Some(frame) = self.frames.last_mut() else { return };
        let only = frame.conditions.len() == 1;
        if kind == "endif" {
            frame.conditions.pop();
            if let Guard::Inside(name) = frame.guard
                && only
            {
                frame.guard = Guard::Closed(name);
            }
        } else if let Some(top) = frame.conditions.last_mut() {
            (top.live, top.taken, top.seen_else) = (live, taken || live, seen_else || kind == "else");
            if only {
                frame.guard = Guard::Absent;
            }
        }
    }

    fn condition(&mut self, span: Span, tokens: &[Token]) -> bool {
        if tokens.is_empty() {
            self.report(Diagnostic::error(span, "the condition is missing"));
            return false;
        }
        let end = tokens.last().map_or(span, |last| last.span.end_position());
        let expanded = self.expand_all(tokens.to_vec(), true);
        let Some(tokens) = expanded else { return false };
        match condition::holds(&tokens, end, self.environment.symbols) {
            Ok(holds) => holds,
            Err(fault) => {
                self.report(Diagnostic::error(fault.span, fault.message));
                false
            }
        }
    }

    fn is_defined(&self, name: Symbol) -> bool {
        self.macros.contains_key(&name) || name == self.names.file || name == self.names.line
    }

    fn include_name(&mut self, rest: &[Token], before: Option<ScanPosition>) -> Option<(String, Span, bool)> {
        let first = rest.first()?;
        if first.is(Punctuation::Less) {
            // The name in angle brackets is not made of tokens, so the line is read again as text.
            let frame = self.frames.last()?;
            let mut scanner = Scanner::new(&frame.text, frame.base, before?);
            let mut found = ScanFindings::default();
            scanner.next(self.environment.symbols, &mut found);
            let (text, span) = scanner.rest_of_line();
            let text = text.trim_start().strip_prefix('<')?;
            return Some((text[..text.find('>')?].to_owned(), Span { start: first.span.start, ..span }, true));
        }
        let expanded = if first.kind == TokenKind::String { rest.to_vec() } else { self.expand_list(rest.to_vec()) };
        let first = expanded.first()?;
        if first.kind == TokenKind::String {
            let text = self.environment.symbols.text(first.text).trim_matches('"').to_owned();
            return Some((text, first.span, false));
        }
        let close = expanded.iter().position(|token| token.is(Punctuation::Greater))?;
        let words = expanded.get(1..close)?.iter().map(|token| spelling(token, self.environment.symbols));
        first.is(Punctuation::Less).then(|| (words.collect(), first.span, true))
    }

    fn include(&mut self, name: &str, span: Span, system: bool) {
        let limits = self.environment.limits;
        if self.frames.len() > limits.max_include_depth {
            let message = format!("files include each other more than {} deep", limits.max_include_depth);
            return self.report(
                Diagnostic::error(span, message).help("does the file include itself without an include guard?"),
            );
        }
        self.inclusions += 1;
        if self.inclusions > limits.max_inclusions {
            let message = format!("more than {} inclusions", limits.max_inclusions);
            return self.report(Diagnostic::error(span, message).help("give the included files include guards"));
        }
        let beside = self.frames.last().and_then(|frame| frame.path.parent()).map(Path::to_owned);
        let folders = beside.into_iter().filter(|_| !system).chain(self.environment.include.iter().cloned());
        let candidates: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
        for path in candidates {
            let identity = self.identity(&path);
            if self.is_guarded(&identity) {
                return;
            }
            let file = match self.known.get(&identity) {
                Some(file) => *file,
                None => {
                    let Some(content) = self.environment.files.read(&path) else { continue };
                    match self.add_file(&path, &identity, content, span) {
                        Some(file) => file,
                        None => return,
                    }
                }
            };
            self.output.events.push((self.output.tokens.len(), PreprocessorEvent::Enter));
            return self.enter(path, identity, file);
        }
        if let Some(text) = super::built_in(name) {
            let path = PathBuf::from(format!("<built in>/{name}"));
            if self.is_guarded(&path) {
                return;
            }
            let known = self.known.get(&path).copied();
            let Some(file) = known.or_else(|| self.add_file(&path, &path, text.into(), span)) else { return };
            self.output.events.push((self.output.tokens.len(), PreprocessorEvent::Enter));
            return self.enter(path.clone(), path, file);
        }
        let diagnostic = Diagnostic::error(span, format!("there is no file `{name}`"));
        self.report(if self.environment.include.is_empty() {
            diagnostic.help("name the folder to search with `-I`, or `.include(..)` in build.rs")
        } else {
            let folders: Vec<_> =
                self.environment.include.iter().map(|folder| format!("`{}`", folder.display())).collect();
            diagnostic.note(format!("searched in {}", folders.join(", ")))
        });
    }

    fn is_guarded(&self, identity: &Path) -> bool {
        self.guards.get(identity).is_some_and(|guard| self.macros.contains_key(guard))
    }

    fn add_file(&mut self, path: &Path, identity: &Path, content: Vec<u8>, span: Span) -> Option<FileId> {
        let small = content.len() <= self.environment.limits.max_file_size;
        let file = if small { self.environment.sources.add(path, content) } else { None };
        match file {
            Some(file) => {
                self.environment.sources.mark_included(file, span);
                self.known.insert(identity.to_owned(), file);
            }
            None => self.report(Diagnostic::error(span, "the file is too large").note(format!(
                "the limit is {} octets for one file, 1 GiB for all",
                self.environment.limits.max_file_size
            ))),
        }
        file
    }
}
