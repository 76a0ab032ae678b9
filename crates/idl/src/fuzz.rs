//! Entry points for fuzzing: functions over bytes that must return soon and without a panic for
//! every input.

mod words;

use crate::compile::{Compilation, CompileOptions};
use crate::lex::FileSource;
use crate::limits::CompilerLimits;
use std::path::Path;

/// Compiles the bytes as source text and renders the messages.
///
/// A leading comment chooses settings: `//4` selects IDL 4. `//f` provides files to include, one of
/// which is the second half of the text. `//4f` selects both.
pub fn source(bytes: &[u8]) {
    drop(of_source(bytes, MESSAGES));
}

/// Compiles the bytes as [`source`] does, but renders messages for only one input in eight.
pub fn source_with_few_messages(bytes: &[u8]) {
    drop(of_source(bytes, laid_out(bytes)));
}

fn of_source(bytes: &[u8], messages: usize) -> Compilation {
    let line = bytes.strip_prefix(b"//").and_then(|rest| rest.split(|octet| *octet == b'\n').next());
    let chosen = |mark: u8| line.is_some_and(|line| line.len() <= 2 && line.contains(&mark));
    let half = || String::from_utf8_lossy(&bytes[bytes.len() / 2..]).into_owned();
    compile(messages, bytes.to_vec(), chosen(b'4'), &Included(chosen(b'f').then(half)))
}

/// Compiles a text in which each byte after the first selects a few tokens that are frequent in
/// IDL.
pub fn tokens(bytes: &[u8]) {
    of_tokens(bytes, MESSAGES);
}

/// Compiles the bytes as [`tokens`] does, but renders messages for only one input in eight.
pub fn tokens_with_few_messages(bytes: &[u8]) {
    of_tokens(bytes, laid_out(bytes));
}

fn of_tokens(bytes: &[u8], messages: usize) {
    let Some((settings, words)) = bytes.split_first() else { return };
    let files = Included((settings & 2 == 2).then(|| text_of(&words[words.len() / 2..])));
    compile(messages, text_of(words).into_bytes(), settings & 1 == 1, &files);
}

struct Included(Option<String>);

impl FileSource for Included {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let text = self.0.as_ref()?;
        let text = match path.file_name()?.to_str()? {
            "half.idl" => text.clone(),
            "guarded.idl" => format!("#ifndef GUARDED\n#define GUARDED\n#include \"half.idl\"\n{text}\n#endif\n"),
            "once.idl" => format!("#pragma once\n#include <../in/./guarded.idl>\n#pragma prefix \"once.org\"\n{text}"),
            "endless.idl" => format!("typedef long T;\n#include \"endless.idl\"\n{text}"),
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

fn text_of(bytes: &[u8]) -> String {
    let (mut text, mut open) = (String::new(), 0usize);
    for byte in bytes {
        let word = words::WORDS.get(usize::from(*byte) % words::WORDS.len()).copied().unwrap_or_default();
        open = (open + word.matches('{').count()).saturating_sub(word.matches('}').count());
        text.push_str(word);
        text.push(' ');
    }
    text + &"};".repeat(open)
}

fn compile(messages: usize, text: Vec<u8>, is_idl_4_enabled: bool, files: &dyn FileSource) -> Compilation {
    let limits = CompilerLimits {
        max_expanded_tokens: 4_000,
        max_inclusions: 6,
        max_array_elements: 1 << 16,
        ..CompilerLimits::default()
    };
    let (defines, include) = (vec!["VALUE=1".to_owned()], vec!["in".into()]);
    let options = CompileOptions { defines, include, limits, is_idl_4_enabled, ..CompileOptions::default() };
    let mut compilation = Compilation::from_text(Path::new("fuzz.idl"), text, &options, files);
    if compilation.is_accepted() {
        let _ = compilation.to_rust();
    }
    for diagnostic in compilation.diagnostics.list().iter().take(messages) {
        let _ = diagnostic.render(&compilation.sources, false);
        let _ = diagnostic.to_json(&compilation.sources);
    }
    compilation
}

const MESSAGES: usize = 2;

fn laid_out(input: &[u8]) -> usize {
    let sum = input.iter().fold(0_u8, |sum, octet| sum.wrapping_mul(31).wrapping_add(*octet));
    if sum % 8 == 0 { MESSAGES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::{MESSAGES, of_source, source, text_of, tokens, words::WORDS};

    #[test]
    fn mutated_texts_cause_no_panic() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for part in ["refused", "accepted"] {
            for entry in std::fs::read_dir(folder.join(part)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "idl") {
                    texts.push(std::fs::read(path).unwrap());
                }
            }
        }
        texts.sort();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap() % below.max(1)
        };
        for _ in 0..4_000 {
            let mut text = texts[random(texts.len())].clone();
            for _ in 0..=random(4) {
                let other = &texts[random(texts.len())];
                match random(5) {
                    0 => text.truncate(random(text.len())),
                    1 if !text.is_empty() => {
                        let at = random(text.len());
                        text[at] = b"{}();:,<>\"'\\#@_=+-*/x0 \n\xff"[random(25)];
                    }
                    2 => {
                        let (from, to) = (random(other.len()), random(other.len()));
                        let piece = other[from.min(to)..from.max(to)].to_vec();
                        let at = random(text.len());
                        text.splice(at..at, piece);
                    }
                    3 if !text.is_empty() => {
                        let (from, to) = (random(text.len()), random(text.len()));
                        text.drain(from.min(to)..from.max(to));
                    }
                    _ => text.extend_from_slice(other),
                }
            }
            source(&text);
        }
    }

    #[test]
    fn leading_comment_selects_idl_4_and_included_files() {
        let accepted = |text: &str| of_source(text.as_bytes(), MESSAGES).is_accepted();
        let (empty, includes) = ("struct S {};", "#include <half.idl>\n/*       */ typedef long T;");
        assert!(accepted(&format!("//4\n{empty}")) && !accepted(empty) && !accepted(&format!("//f\n{empty}")));
        assert!(!accepted(&format!("//4\n{includes}")) && !accepted(&format!("// of files\n{includes}")));
        let with_files = of_source(format!("//f\n{includes}").as_bytes(), MESSAGES);
        assert_eq!(with_files.files_read().count(), 2, "{:?}", with_files.diagnostics.list());
        assert_eq!(of_source(format!("//4f\n{includes}{empty}").as_bytes(), MESSAGES).files_read().count(), 2);
    }

    fn bytes(words: &[&str]) -> Vec<u8> {
        let place = |word: &&str| WORDS.iter().position(|known| known == word).unwrap();
        words.iter().map(|word| u8::try_from(place(word)).unwrap()).collect()
    }

    #[test]
    fn each_byte_selects_a_word_and_open_braces_are_closed() {
        assert!(WORDS.len() <= 256);
        let of = bytes(&["module A {", "exception X {", "long a;", "};", "interface A {"]);
        assert_eq!(text_of(&of), "module A { exception X { long a; }; interface A { };};");
        let more = bytes(&["void f(in long p, out S q, inout any r) raises (X);", "};", "};", "};", "#"]);
        tokens(&[vec![1], of, more].concat());
        WORDS.iter().for_each(|word| tokens(&[vec![0], bytes(&[word])].concat()));
        WORDS.iter().for_each(|word| tokens(&[vec![3], bytes(&[word, word])].concat()));
    }

    #[test]
    fn hostile_texts_are_compiled_in_bounded_time() {
        let deep = |open: &str, count: usize| open.repeat(count);
        let doubling: String =
            (0..64).map(|level| format!("#define M{level} M{} M{}\n", level + 1, level + 1)).collect();
        let arguments: String = (0..40).map(|level| format!("#define F{level}(x) F{}(x x)\n", level + 1)).collect();
        for text in [
            deep("sequence<", 200_000),
            "typedef ".to_owned() + &deep("sequence<", 200_000),
            deep("module M { ", 200_000),
            deep("struct S { ", 200_000),
            "const long x = ".to_owned() + &deep("(", 200_000),
            "const long x = ".to_owned() + &deep("-", 200_000),
            "const long x = 1".to_owned() + &deep(" + 1", 200_000) + ";",
            "const long x = ".to_owned() + &deep("1 | 2 ^ 3 & 4 << 5 + 6 * ", 100_000),
            doubling + "M0",
            arguments + "F0(a)",
            "#define f(x) x\n".to_owned() + &deep("f(", 100_000),
            deep("#if 1\n", 200_000),
            "#if ".to_owned() + &deep("(", 200_000),
            deep("@a(1) ", 100_000),
            deep("interface A; ", 100_000),
            "typedef long T".to_owned() + &deep("[1]", 100_000) + ";",
            "struct S { long ".to_owned() + &(0..50_000).map(|n| format!("m{n},")).collect::<String>() + "z; };",
            "enum E { ".to_owned() + &(0..50_000).map(|n| format!("e{n},")).collect::<String>() + "z };",
            "interface I0 { };".to_owned()
                + &(0..3_000).map(|n| format!("interface I{} : I{n} {{ void f{n}(); }};\n", n + 1)).collect::<String>(),
            "struct S0 { long x; };".to_owned()
                + &(0..300).map(|n| format!("struct S{} {{ S{n} a; S{n} b; }};", n + 1)).collect::<String>(),
            "#define S(x) #x\n#define X(x) S(x)\nconst string s = ".to_owned()
                + &deep("X(", 60)
                + "\"\""
                + &deep(")", 60)
                + ";",
            "#define P(x) x##x\n#define D(x) P(x)\ntypedef long ".to_owned()
                + &deep("D(", 60)
                + "a"
                + &deep(")", 60)
                + ";",
            (0..20_000).map(|n| format!("#define M{n} M{}\n", n + 1)).collect::<String>() + &deep("M0 ", 200),
            deep("__LINE__ ", 200_000),
            "#line 2147483647\n\n\n#line 4294967296\n__LINE__ __LINE__".to_owned(),
            deep("#line 7 \"x.idl\"\n__FILE__ ", 20_000),
            "#define F(".to_owned() + &(0..50_000).map(|n| format!("p{n},")).collect::<String>() + "z) z\n",
            deep("module M { typedef long T; }; ", 20_000),
            (0..20_000).map(|n| format!("module M {{ typedef long T{n}; typedef T0 U{n}; }};\n")).collect::<String>(),
            "interface B0 { typedef long T; };".to_owned()
                + &(1..190)
                    .map(|n| format!("interface B{n} : B{} {{ typedef long T; }};\n", n - 1))
                    .collect::<String>()
                + "interface I : B189 { "
                + &(0..5_000).map(|n| format!("void f{n}(in T a, in U{n} b);")).collect::<String>()
                + "};",
            "interface W { };".to_owned()
                + &(0..2_000).map(|n| format!("interface W{n} {{ }};")).collect::<String>()
                + "interface I : W"
                + &(0..2_000).map(|n| format!(", W{n}")).collect::<String>()
                + " { };",
            "@annotation A { long a default 1; };".to_owned() + &deep("@A(a = 1) ", 50_000) + "struct S { long x; };",
            "bitset B { ".to_owned() + &deep("bitfield<1>;", 50_000) + "};",
            deep("; ", 100_000),
            deep("\0", 100_000),
            deep("$", 100_000),
        ] {
            let started = std::time::Instant::now();
            source(text.as_bytes());
            let head: String = text.chars().take(40).collect();
            assert!(started.elapsed().as_secs() < 20, "{head} took {:?}", started.elapsed());
        }
    }
}
