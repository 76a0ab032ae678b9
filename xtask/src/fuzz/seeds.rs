//! Initial inputs of fuzz targets: real messages, references and IDL.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Target;

/// The folder of the seeds, which each run rewrites.
pub(crate) const FOLDER: &str = "target/fuzz/seeds";

const VECTORS: &str = "crates/wire/tests/vectors";

const IDL: [&str; 4] = ["crates/idl/tests/accepted", "crates/idl/tests/refused", "interop/idl", "/usr/share/idl"];

const CORBALOC: [&str; 6] = [
    "corbaloc::1.2@host:2810,iiop:1.0@[::1]:1,:h/a%20b%00/c",
    "corbaloc:rir:/NameService",
    "corbaloc:uiop:/tmp/socket/Key",
    "corbaname::host:2809/Names#a.kind/b%2f",
    "corbaname:rir:#x",
    "IOR:000000000000000100000000000000",
];

pub(crate) fn write(root: &Path, targets: &[Target]) -> Result<(), String> {
    let vectors = Vectors::read(&root.join(VECTORS))?;
    for target in targets {
        let folder = root.join(FOLDER).join(target.name);
        let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(wrong)?;
        }
        fs::create_dir_all(&folder).map_err(wrong)?;
        let seeds: BTreeSet<Vec<u8>> = match target.name {
            "cdr" => vectors.values(),
            "giop_framing" => vectors.streams(),
            "ior_text" => vectors.texts(),
            "idl" => pieces(root, target.longest)?,
            "any" => anys(),
            "generated" => (0..16).map(|choice| [&[choice, 1][..], &[0; 100]].concat()).collect(),
            _ => [vec![0; 8]].into(),
        };
        let short = seeds.iter().filter(|seed| seed.len() <= target.longest);
        for (at, seed) in short.enumerate() {
            fs::write(folder.join(format!("{at:05}")), seed).map_err(wrong)?;
        }
    }
    Ok(())
}

fn anys() -> BTreeSet<Vec<u8>> {
    let kinds = (0..=27).map(|kind| [&[0, 0, 0, 0, kind][..], &[0; 24]].concat());
    let octets = [0, 0, 0, 0, 19, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 2, 7, 8];
    kinds.chain([[&[0][..], &octets].concat()]).collect()
}

#[derive(Default)]
struct Vectors {
    messages: Vec<Vec<u8>>,
    references: Vec<String>,
}

impl Vectors {
    fn read(folder: &Path) -> Result<Self, String> {
        let mut vectors = Self::default();
        for path in below(folder, "json") {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let file: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            for vector in file["vectors"].as_array().into_iter().flatten() {
                vectors.messages.extend(vector["bytes_hex"].as_str().and_then(octets));
                vectors.references.extend(vector["ior"].as_str().map(str::to_owned));
            }
        }
        Ok(vectors)
    }

    /// Returns two streams for each message that has a next one: the message, and the message with
    /// half of the next one. The two streams have different piece sizes.
    fn streams(&self) -> BTreeSet<Vec<u8>> {
        let mut seeds = BTreeSet::new();
        for (message, next) in self.messages.iter().zip(self.messages.iter().skip(1)) {
            seeds.insert([&[255; 4], message.as_slice()].concat());
            seeds.insert([&[3, 11, 0, 64], message.as_slice(), &next[..next.len() / 2]].concat());
        }
        seeds
    }

    fn values(&self) -> BTreeSet<Vec<u8>> {
        let mut seeds = BTreeSet::new();
        let references = self.references.iter().filter_map(|text| octets(text.strip_prefix("IOR:")?));
        for body in self
            .messages
            .iter()
            .filter_map(|message| message.get(12..).map(<[u8]>::to_vec))
            .chain(references.filter_map(|reference| reference.get(4..).map(<[u8]>::to_vec)))
        {
            for settings in [0x01, 0x9d] {
                seeds.insert([&[settings], body.as_slice()].concat());
            }
        }
        seeds
    }

    fn texts(&self) -> BTreeSet<Vec<u8>> {
        let texts = self.references.iter().map(String::as_str).chain(CORBALOC);
        texts.map(|text| text.as_bytes().to_vec()).collect()
    }
}

fn octets(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn pieces(root: &Path, longest: usize) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut seeds = BTreeSet::new();
    for path in IDL.iter().flat_map(|folder| below(&root.join(folder), "idl")) {
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut piece = String::new();
        for line in String::from_utf8_lossy(&text).lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if piece.len() + line.len() >= longest {
                seeds.insert(std::mem::take(&mut piece).into_bytes());
            }
            if !line.is_empty() {
                piece = piece + line + "\n";
            }
        }
        seeds.insert(piece.into_bytes());
    }
    Ok(seeds)
}

/// Returns the files with the extension below a folder, or no files if the folder cannot be read.
fn below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(below(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_real_seeds_for_each_target() {
        let root = crate::root();
        let vectors = Vectors::read(&root.join(VECTORS)).unwrap();
        assert!(vectors.messages.len() > 400 && vectors.messages.iter().all(|message| message.starts_with(b"GIOP")));
        assert!(vectors.streams().len() > 400 && vectors.values().len() > 400 && vectors.texts().len() > 20);
        let pieces = pieces(&root, 256).unwrap();
        assert!(pieces.len() > 20 && pieces.iter().any(|piece| piece.starts_with(b"module")));
    }

    #[test]
    fn octets_of_digits() {
        assert_eq!(octets("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!((octets("0g"), octets("")), (None, Some(Vec::new())));
    }
}
