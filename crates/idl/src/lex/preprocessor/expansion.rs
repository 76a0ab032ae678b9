//! Macro definition, macro expansion and `defined`.

use super::super::macros::{LONGEST, Macro};
use super::super::scanner::{ScanFindings, Scanner};
use super::super::token::{Punctuation, Token, TokenKind};
use super::{Expansion, Preprocessor};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::symbol::Symbol;
use std::sync::Arc;

impl Preprocessor<'_> {
    const PARAMETERS: usize = 256;
    const OCTETS_OF_A_TOKEN: usize = 16;

    pub(super) fn define_macro(&mut self, name: Symbol, span: Span, rest: &[Token]) {
        if name == self.names.defined {
            return self.report(Diagnostic::error(span, "`defined` cannot be a macro"));
        }
        let with_parameters = rest.first().is_some_and(|first| first.is(Punctuation::OpenParenthesis) && !first.spaced);
        let definition = if with_parameters {
            let Some(definition) = self.parameters(span, rest) else { return };
            definition
        } else {
            Macro::object(rest.to_vec())
        };
        if let Some((token, message)) = definition.fault() {
            let diagnostic = Diagnostic::error(token.span, message);
            return self.report(diagnostic);
        }
        if let Some(old) = self.macros.get(&name)
            && !old.same_as(&definition)
        {
            let message =
                format!("macro `{}` is defined twice, with different meanings", self.environment.symbols.text(name));
            let warning = Diagnostic::warning(span, message).help("`#undef` it first");
            self.report(warning);
        }
        self.macros.insert(name, definition);
    }

    fn parameters(&mut self, span: Span, rest: &[Token]) -> Option<Macro> {
        let mut parameters = Vec::new();
        let mut variadic = false;
        let mut at = 1;
        loop {
            let token = rest.get(at).copied();
            at += 1;
            match token {
                Some(close) if close.is(Punctuation::CloseParenthesis) && parameters.is_empty() => break,
                Some(dots) if dots.is(Punctuation::Ellipsis) => {
                    variadic = true;
                    parameters.push(self.names.variadic);
                }
                Some(name) if name.kind == TokenKind::Identifier && parameters.contains(&name.text) => {
                    let message = format!("two parameters are called `{}`", self.environment.symbols.text(name.text));
                    self.report(Diagnostic::error(name.span, message));
                    return None;
                }
                Some(_) if parameters.len() >= Self::PARAMETERS => {
                    let message = format!("the macro has more than {} parameters", Self::PARAMETERS);
                    self.report(Diagnostic::error(span, message));
                    return None;
                }
                Some(name) if name.kind == TokenKind::Identifier => parameters.push(name.text),
                _ => {
                    let span = token.map_or(span, |token| token.span);
                    self.report(Diagnostic::error(span, "a macro parameter was expected here"));
                    return None;
                }
            }
            let token = rest.get(at).copied();
            at += 1;
            match token {
                Some(comma) if comma.is(Punctuation::Comma) && !variadic => {}
                Some(close) if close.is(Punctuation::CloseParenthesis) => break,
                _ => {
                    let span = token.map_or(span, |token| token.span);
                    self.report(Diagnostic::error(span, "`,` or `)` was expected in the macro's parameters"));
                    return None;
                }
            }
        }
        Some(Macro::function(parameters, variadic, &rest[at.min(rest.len())..]))
    }

    pub(super) fn expand(&mut self, token: &Token) -> bool {
        if token.kind != TokenKind::Identifier || token.painted {
            return false;
        }
        let Some(definition) = self.macros.get(&token.text).cloned() else {
            return self.expand_position(token);
        };
        if self.active.contains(&token.text) {
            // The name of a macro inside its own expansion stays marked (`painted`), so that no
            // later expansion replaces it.
            let tokens: Arc<[Token]> = [Token { painted: true, ..*token }].into();
            self.expansions.push(Expansion { tokens, next: 0, of: None, barrier: false });
            return true;
        }
        let arguments = match &definition.parameters {
            None => Vec::new(),
            Some(parameters) => {
                if !self.next_is_parenthesis() {
                    return false;
                }
                let Some(arguments) = self.arguments(token, parameters.len(), definition.variadic) else { return true };
                arguments
            }
        };
        if token.text == self.names.pragma {
            self.pragma_operator(token, &arguments);
            return true;
        }
        // The limit includes tokens that are examined and produce nothing.
        let looked_at = arguments.iter().map(Vec::len).fold(definition.body.len(), usize::saturating_add);
        if !self.spend(looked_at, token.span) {
            return true;
        }
        let mut expanded = Vec::with_capacity(arguments.len());
        for (argument, needed) in arguments.iter().zip(definition.needs_expanded()) {
            expanded.push(if needed { self.expand_list(argument.clone()) } else { Vec::new() });
        }
        if !self.spend(definition.length_with(&arguments, &expanded), token.span) {
            return true;
        }
        let made = definition.substitute(token, &arguments, &expanded, self.environment.symbols);
        let Some((tokens, made)) = made else {
            let message = format!("a macro makes a token of more than {} characters", LONGEST);
            self.report(Diagnostic::error(token.span, message));
            return true;
        };
        if !self.spend(1 + made / Self::OCTETS_OF_A_TOKEN, token.span) {
            return true;
        }
        self.active.insert(token.text);
        self.expansions.push(Expansion { tokens: tokens.into(), next: 0, of: Some(token.text), barrier: false });
        true
    }

    fn pragma_operator(&mut self, operator: &Token, arguments: &[Vec<Token>]) {
        let [Some([text])] = [arguments.first().map(Vec::as_slice)] else {
            return self.report(Diagnostic::error(operator.span, "`_Pragma` needs one string"));
        };
        let literal = self.environment.symbols.text(text.text);
        let Some(inner) = literal.trim_start_matches('L').strip_prefix('"').filter(|_| text.kind == TokenKind::String)
        else {
            return self.report(Diagnostic::error(text.span, "`_Pragma` needs one string"));
        };
        let directive = inner.strip_suffix('"').unwrap_or(inner).replace("\\\"", "\"").replace("\\\\", "\\");
        let mut found = ScanFindings { skipping: true, ..ScanFindings::default() };
        let mut scanner = Scanner::new(&directive, 0, super::ScanPosition::START);
        let mut tokens = Vec::new();
        loop {
            let token = scanner.next(self.environment.symbols, &mut found);
            if token.kind == TokenKind::End {
                break;
            }
            tokens.push(Token { span: text.span, ..token });
        }
        if self.spend(tokens.len(), operator.span) {
            self.pragma(operator.span, tokens);
        }
    }

    fn spend(&mut self, tokens: usize, span: Span) -> bool {
        let limit = self.environment.limits.max_expanded_tokens;
        let reached = self.expanded > limit;
        self.expanded = self.expanded.saturating_add(tokens);
        if self.expanded > limit && !reached {
            let message = format!("macros expand to more than {limit} tokens");
            self.report(Diagnostic::error(span, message));
        }
        self.expanded <= limit
    }

    pub(super) fn pop_expansion(&mut self) -> Option<Expansion> {
        let expansion = self.expansions.pop()?;
        if let Some(name) = expansion.of {
            self.active.remove(&name);
        }
        Some(expansion)
    }

    fn expand_position(&mut self, token: &Token) -> bool {
        if token.text != self.names.file && token.text != self.names.line {
            return false;
        }
        let (path, line) = self.environment.sources.path_and_line(token.span);
        let (kind, text) = if token.text == self.names.line {
            (TokenKind::Number, line.to_string())
        } else {
            let path = path.display().to_string();
            (TokenKind::String, format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")))
        };
        let text = self.environment.symbols.intern(&text);
        let tokens: Arc<[Token]> = [Token { kind, text, ..*token }].into();
        self.expansions.push(Expansion { tokens, next: 0, of: None, barrier: false });
        true
    }

    fn next_is_parenthesis(&mut self) -> bool {
        for expansion in self.expansions.iter().rev() {
            if let Some(token) = expansion.tokens.get(expansion.next) {
                return token.is(Punctuation::OpenParenthesis);
            }
            if expansion.barrier {
                return false;
            }
        }
        let Some(frame) = self.frames.last() else { return false };
        let mut found = ScanFindings { skipping: true, ..ScanFindings::default() };
        let mut scanner = Scanner::new(&frame.text, frame.base, frame.position);
        scanner.next(self.environment.symbols, &mut found).is(Punctuation::OpenParenthesis)
    }

    fn arguments(&mut self, name: &Token, wanted: usize, variadic: bool) -> Option<Vec<Vec<Token>>> {
        let mut arguments = vec![Vec::new()];
        let mut depth = 0_usize;
        self.next_token();
        loop {
            let (token, from_file) = self.next_token();
            if token.kind == TokenKind::End {
                let message =
                    format!("the arguments of macro `{}` have no end", self.environment.symbols.text(name.text));
                self.report(Diagnostic::error(name.span, message).help("close them with `)`"));
                return None;
            }
            if from_file && token.starts_line && token.is(Punctuation::Hash) {
                self.directive();
                continue;
            }
            match token.kind {
                TokenKind::Punctuation(Punctuation::CloseParenthesis) if depth == 0 => break,
                TokenKind::Punctuation(Punctuation::CloseParenthesis) => depth -= 1,
                TokenKind::Punctuation(Punctuation::OpenParenthesis) => depth += 1,
                TokenKind::Punctuation(Punctuation::Comma)
                    if depth == 0 && !(variadic && arguments.len() == wanted) =>
                {
                    arguments.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            if let Some(argument) = arguments.last_mut() {
                argument.push(token);
            }
        }
        if wanted == 0 && arguments.len() == 1 && arguments[0].is_empty() {
            arguments.clear();
        }
        if variadic && arguments.len() + 1 == wanted {
            arguments.push(Vec::new());
        }
        if arguments.len() != wanted {
            let text = self.environment.symbols.text(name.text);
            let message = format!("macro `{text}` takes {wanted} arguments, {} are given", arguments.len());
            self.report(Diagnostic::error(name.span, message));
            return None;
        }
        Some(arguments)
    }

    pub(super) fn expand_list(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        if !tokens.iter().any(|token| token.kind == TokenKind::Identifier) {
            return tokens;
        }
        self.expand_all(tokens, false).unwrap_or_default()
    }

    /// Expands the macros in the tokens. In a condition, also replaces `defined`, even if a macro
    /// made it.
    pub(super) fn expand_all(&mut self, tokens: Vec<Token>, condition: bool) -> Option<Vec<Token>> {
        if self.nesting >= self.environment.limits.max_argument_nesting {
            let span = tokens.first().map_or(Span::default(), |token| token.span);
            if self.expanded <= self.environment.limits.max_expanded_tokens {
                self.report(Diagnostic::error(span, "macro arguments are nested too deeply"));
            }
            // Each further level would copy the remaining tokens, so the error ends all expansion.
            self.expanded = usize::MAX;
            return Some(Vec::new());
        }
        self.nesting += 1;
        self.expansions.push(Expansion { tokens: tokens.into(), next: 0, of: None, barrier: true });
        let mut result = Some(Vec::new());
        loop {
            let (token, _) = self.next_token();
            if token.kind == TokenKind::End || self.expanded > self.environment.limits.max_expanded_tokens {
                break;
            }
            let made = if condition && token.kind == TokenKind::Identifier && token.text == self.names.defined {
                let value = self.defined(token);
                if value.is_none() {
                    result = None;
                    break;
                }
                value
            } else {
                (!self.expand(&token)).then_some(token)
            };
            if let Some(list) = &mut result {
                list.extend(made);
            }
        }
        while self.pop_expansion().is_some_and(|expansion| !expansion.barrier) {}
        self.nesting -= 1;
        result
    }

    fn defined(&mut self, word: Token) -> Option<Token> {
        let (mut name, _) = self.next_token();
        let parenthesised = name.is(Punctuation::OpenParenthesis);
        if parenthesised {
            name = self.next_token().0;
        }
        if name.kind != TokenKind::Identifier {
            self.report(Diagnostic::error(word.span, "`defined` needs a name"));
            return None;
        }
        if parenthesised && !self.next_token().0.is(Punctuation::CloseParenthesis) {
            self.report(Diagnostic::error(name.span.end_position(), "`)` was expected here"));
            return None;
        }
        let text = if self.is_defined(name.text) { self.names.one } else { self.names.zero };
        Some(Token { kind: TokenKind::Number, text, ..word })
    }
}
