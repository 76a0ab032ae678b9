//! Tests of the preprocessor through the messages of the compiler.

use corelane_idl::NoFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::diagnostic::Severity;
use std::path::Path;

fn said(text: &str) -> Vec<String> {
    let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &CompileOptions::default(), &NoFiles);
    let place = |diagnostic: &corelane_idl::diagnostic::Diagnostic| {
        let location = compilation.sources.location(diagnostic.span);
        let word = if diagnostic.severity == Severity::Error { "error" } else { "warning" };
        format!("{word} {}:{}: {}", location.path.display(), location.line, diagnostic.message)
    };
    compilation.diagnostics.list().iter().map(place).collect()
}

fn accepted(text: &str) {
    assert_eq!(said(text), Vec::<String>::new(), "{text}");
}

#[test]
fn macros_are_expanded() {
    for text in [
        "#define CAT(a, b) a##b\n#define XCAT(a, b) CAT(a, b)\ntypedef XCAT(lo, XCAT(n, g)) T;",
        "#define STR(x) #x\n#define XSTR(x) STR(x)\n#define N 4\nconst string<1> s = XSTR(N);\nconst string<5> t = STR(\"b\\n\");",
        "#define PAIR(a, b) a b\n#define EMPTY\nstruct S { PAIR(long, x); PAIR(EMPTY long, EMPTY y); };",
        "#define ALL(first, ...) first __VA_ARGS__\nstruct S { ALL(short b); ALL(short, c;) };",
        "#define SELF OTHER\n#define OTHER SELF\ninterface I { void f(in long SELF, in long OTHER2); };",
        "#define f(x) x + 1\nconst long c = f\n  (3\n  );\ntypedef long f;",
        "#define LINE typedef \\\n  short T\nLINE;",
        "#define BOUND(n) sequence<long, (n) * 2>\ntypedef BOUND(2 + 1) T;",
        "#define g(x) (x)\n#define h g(\nconst long c = h 3);",
    ] {
        accepted(text);
    }
}

#[test]
fn conditions_select_the_text() {
    for text in [
        "#define N 4\n#if defined(N) && N >= 4 && !defined M && (N << 1) == 8 ? 1 : 0\ntypedef long T;\n#endif\ntypedef T U;",
        "#define HAS defined(N)\n#define N\n#if HAS && !defined HAS2\ntypedef long T;\n#endif\ntypedef T U;",
        "#if 0\n#error no\n#elif 1\ntypedef long T;\n#elif 1/0\n#else\n#error no\n#endif\ntypedef T U;",
        "#if 'a' == 97 && 0x10u == 16 && !(-1 > 0) && -1 > 0u && unknown == 0\ntypedef long T;\n#endif\ntypedef T U;",
        "#if (2 || 1/0) && !(0 && 1/0)\ntypedef long T;\n#endif\ntypedef T U;",
        "#if 0\nit's not \"read\n#if 1\n#bad\n#else\n#endif\n#define T long\n#endif\ntypedef long T;",
        "#ifndef G\n#define G\n# /* nothing */\n#\ntypedef long T;\n#endif\n",
    ] {
        accepted(text);
    }
}

#[test]
fn digraphs_pragma_operators_and_predefined_macros_are_supported() {
    for text in [
        "%:define N 3\nmodule M <% typedef long T<:N:>; %>;\n%:define CAT(a, b) a%:%:b\ntypedef M::CAT(, T) U;",
        "typedef sequence<::T> L;\n",
        "#if 1 and not 0 and __STDC__\ntypedef long and;\n#endif\ntypedef and U;",
        "const string<11> day = __DATE__; const string<8> time = __TIME__;\n#ifdef __DATE__\ntypedef long T;\n#endif\ntypedef T U;",
        "_Pragma(\"prefix \\\"a.org\\\"\") interface I {};\n#pragma ID I \"IDL:a.org/I:1.0\"\n",
        "#define PREFIX(x) _Pragma(#x) \nPREFIX(prefix \"a.org\") interface I {};\n#pragma ID I \"IDL:a.org/I:1.0\"\n",
    ] {
        let text = if text.contains("::T>") { format!("typedef long T; {text}") } else { text.to_owned() };
        accepted(&text);
    }
    assert_eq!(said("_Pragma(once)"), ["error a.idl:1: `_Pragma` needs one string"]);
    assert_eq!(said("_Pragma(\"prefix\")").len(), 1);
    assert_eq!(said("_Pragma"), ["error a.idl:1: a declaration was expected, `_Pragma` was found"]);
}

#[test]
fn text_of_errors_and_foreign_pragmas_is_not_scanned() {
    accepted("#pragma somebody's \"own\ntypedef long T;\n#pragma omni @#$\n");
    assert_eq!(said("#warning don't\n"), ["warning a.idl:1: `#warning` says: don't"]);
    assert_eq!(said("#error it's \"over\n"), ["error a.idl:1: `#error` says: it's \"over"]);
}

#[test]
fn foreign_characters_are_reported_where_they_are_used() {
    accepted("#define CPP $x `a` \\ é@\n#define S(x) #x\nconst string<5> s = S(a $ b);\n#if 0\n$\n#endif\n");
    let backslash = |bound| said(&format!("#define S(x) #x\nconst string<{bound}> s = S(\\\"a\");"));
    assert_eq!((backslash(4).len(), backslash(3).len()), (0, 1));
    let unended = said("#define S(x) #x\nconst string s = S(\\\"a\")\ntypedef long T;");
    assert!(unended.len() == 1 && unended[0].starts_with("error a.idl:2: `;` was expected after"), "{unended:?}");
    assert_eq!(said("#define D $\ntypedef D T;"), ["error a.idl:2: no token of IDL begins with `$`"]);
    assert_eq!(said("typedef long $x;\ntypedef long T;"), ["error a.idl:1: no token of IDL begins with `$`"]);
    assert_eq!(said("typedef long größe;\n"), ["error a.idl:1: `öße` is not allowed in a name"]);
    assert_eq!(said("struct S { long é_1, b; };\n"), ["error a.idl:1: `é_1` is not allowed in a name"]);
    assert_eq!(said("const wstring w = L\"\\ud800\";").len(), 1);
}

#[test]
fn one_mistake_causes_one_message() {
    for (text, wanted) in [
        ("const string s = \"abc;\ntypedef long T;", "error a.idl:1: a string literal has no end"),
        ("const char c = 'a;\ntypedef long T;", "error a.idl:1: a character literal has no end"),
        ("enum E { a b, c };", "error a.idl:1: `,` was expected, `b` was found"),
        ("enum E { a, b c };", "error a.idl:1: `,` was expected, `c` was found"),
        ("bitmask M { a b, c };", "error a.idl:1: `,` was expected, `b` was found"),
        ("enum E { a, gr\u{f6}\u{df}e, b };", "error a.idl:1: `\u{f6}\u{df}e` is not allowed in a name"),
        ("bitmask M { a, gr\u{f6}\u{df}e, b };", "error a.idl:1: `\u{f6}\u{df}e` is not allowed in a name"),
        ("enum E { a, b\nstruct S { long x; };", "error a.idl:2: `}` was expected, `struct` was found"),
    ] {
        assert_eq!(said(text), [wanted], "{text}");
    }
    let text = "struct S { int x; };";
    let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &CompileOptions::default(), &NoFiles);
    assert_eq!(compilation.diagnostics.list()[0].help.as_deref(), Some("is `long` meant?"));
}

#[test]
fn ignored_words_of_a_directive_are_reported() {
    let left_out =
        |directive: &str| format!("warning a.idl:1: `#{directive}` takes one name; the rest of the line has no effect");
    assert_eq!(said("#ifdef A && B\n#endif A\n"), [left_out("ifdef")]);
    assert_eq!(said("#ifndef A B\n#else A\n#endif\n"), [left_out("ifndef")]);
    assert_eq!(said("#undef A B\n"), [left_out("undef")]);
    accepted("#if 0\n#ifdef A B\n#endif\n#endif // A\n");
}

#[test]
fn line_directives_change_the_locations_in_messages() {
    let text = "#line 100 \"other.idl\"\ntypedef Missing T;\nconst long x = __LINE__;\ntypedef long A[__LINE__];\nconst string<9> s = __FILE__;\n\
                const string<8> u = __FILE__;\n# 7 \"third.idl\"\ntypedef Gone V;\n";
    assert_eq!(
        said(text),
        [
            "error other.idl:100: `Missing` is not declared",
            "error other.idl:104: the string has 9 characters, its type allows 8",
            "error third.idl:7: `Gone` is not declared",
        ]
    );
}

#[test]
fn errors_of_directives_are_reported_at_their_line() {
    for (text, wanted) in [
        ("#if\n#endif", "error a.idl:1: the condition is missing"),
        ("#if 1 +\n#endif", "error a.idl:1: the condition ends here; a value was expected"),
        ("#if 1 / 0\n#endif", "error a.idl:1: division by zero"),
        ("#if defined 3\n#endif", "error a.idl:1: `defined` needs a name"),
        ("#if defined(N\n#endif", "error a.idl:1: `)` was expected here"),
        ("#else", "error a.idl:1: `#else` without a condition before it"),
        ("#if 1\n#else\n#else\n#endif", "error a.idl:3: `#else` after `#else`"),
        ("#if 1", "error a.idl:1: a condition has no `#endif`"),
        ("#define 3x", "error a.idl:1: `#define` needs a name"),
        ("#define defined", "error a.idl:1: `defined` cannot be a macro"),
        ("#define F(a, a) a", "error a.idl:1: two parameters are called `a`"),
        ("#define F(a", "error a.idl:1: `,` or `)` was expected in the macro's parameters"),
        ("#define F(a) #b", "error a.idl:1: `#` has to be followed by a parameter of the macro"),
        ("#define P ## a", "error a.idl:1: `##` needs an operand on both sides"),
        ("#define P a ##", "error a.idl:1: `##` needs an operand on both sides"),
        ("#define F(a) a\nF(1, 2)", "error a.idl:2: macro `F` takes 1 arguments, 2 are given"),
        ("#define F(a) a\nF(1", "error a.idl:2: the arguments of macro `F` have no end"),
        ("#include x.idl", "error a.idl:1: `#include` needs a file name in quotes or angle brackets"),
        ("#include \"x.idl\"", "error a.idl:1: there is no file `x.idl`"),
        ("#line x", "error a.idl:1: `#line` needs a line number of at most 2147483647"),
        ("#line 2147483648", "error a.idl:1: `#line` needs a line number of at most 2147483647"),
        ("#foo", "error a.idl:1: there is no directive `#foo`"),
    ] {
        assert_eq!(said(text).first().map(String::as_str), Some(wanted), "{text}");
    }
    assert_eq!(said("#define N 1\n#define N 2\n").len(), 1);
    accepted("#define N 1\n#define N 1\n#undef N\n#undef N\n#define N 2\n");
}

#[test]
fn many_warnings_do_not_stop_compilation() {
    let text = "; ".repeat(300) + "typedef Missing T;";
    let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &CompileOptions::default(), &NoFiles);
    assert!(!compilation.is_accepted());
    let shown = compilation.diagnostics.render(&compilation.sources, false);
    assert!(shown.contains("`Missing` is not declared") && shown.contains("200 more warnings"), "{shown}");
}
