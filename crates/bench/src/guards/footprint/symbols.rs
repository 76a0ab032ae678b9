//! Size of each crate in a program, from the sizes of its symbols as printed by `nm`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;

pub(super) fn by_crate(program: &Path) -> Result<Vec<(String, u64)>, Failure> {
    let mut nm = Command::new("nm");
    nm.args(["--demangle", "--print-size", "--defined-only"]).arg(program).stdin(Stdio::null());
    let output = nm.output().map_err(|error| Failure::new(format!("`nm` cannot be run: {error}; install binutils")))?;
    let sums = sums(&String::from_utf8_lossy(&output.stdout));
    if sums.is_empty() {
        return Err(Failure::new(format!("`{}` has no symbols", program.display())));
    }
    Ok(sums)
}

/// Returns the owners of the symbols, each with the sum of the sizes of its symbols. `lines` have
/// the form `ADDRESS SIZE KIND NAME`.
fn sums(lines: &str) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for line in lines.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some(_), Some(size), Some(kind), Some(name)) = (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(size) = u64::from_str_radix(size, 16) else { continue };
        // Zero-initialised data take no space in the file.
        if !matches!(kind, "t" | "T" | "w" | "W" | "v" | "V" | "r" | "R" | "d" | "D") {
            continue;
        }
        let owner = owner(name);
        match sums.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, sum)) => *sum += size,
            None => sums.push((owner.to_owned(), size)),
        }
    }
    sums.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    sums
}

/// Returns the crate or the group for which a symbol counts. A trait implementation counts for the
/// crate of the implementing type.
fn owner(name: &str) -> &str {
    const LIBRARY: [&str; 3] = ["std", "core", "alloc"];
    let name = name.strip_prefix("_<").unwrap_or(name);
    let start = name.trim_start_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    for word in ["mut ", "dyn ", "const "] {
        if let Some(rest) = start.strip_prefix(word) {
            return owner(rest);
        }
    }
    let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(start.len());
    let (first, rest) = start.split_at(end);
    if !rest.starts_with("::") && !rest.starts_with('[') {
        return if name.starts_with("GCC_except_table") { "exception tables" } else { "other" };
    }
    match first {
        _ if LIBRARY.contains(&first) => "Rust's library",
        "addr2line" | "gimli" | "object" | "rustc_demangle" | "miniz_oxide" | "hashbrown" | "memchr" => {
            "Rust's library"
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_belong_to_the_crate_named_first() {
        for (name, crate_name) in [
            ("corelane_net::tcp::listen", "corelane_net"),
            ("<corelane::poa::Poa as core::fmt::Debug>::fmt", "corelane"),
            ("<&mut corelane_wire::Decoder as x::Y>::z", "corelane_wire"),
            ("<dyn corelane::Skeleton>::f", "corelane"),
            ("core::ptr::drop_in_place<corelane::Orb>", "Rust's library"),
            ("gimli::read::x", "Rust's library"),
            ("main", "other"),
            ("GCC_except_table9", "exception tables"),
        ] {
            assert_eq!(owner(name), crate_name, "{name}");
        }
    }

    #[test]
    fn sizes_of_a_crate_are_summed() {
        let lines = "0000 0000000000000010 t a::x\n0000 0000000000000001 T b::y\n0000 0000000000000020 t a::z\n\
                     0000 00000000000000ff b a::zeroes\n0000 t without_size\n";
        assert_eq!(sums(lines), [("a".to_owned(), 0x30), ("b".to_owned(), 1)]);
    }
}
