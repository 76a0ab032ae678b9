//! The values of `cargo metadata` that the checks need.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::steps;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

impl Kind {
    pub(crate) fn section(self) -> &'static str {
        match self {
            Kind::Normal => "dependencies",
            Kind::Build => "build-dependencies",
            Kind::Dev => "dev-dependencies",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// False for a path dependency.
    pub(crate) external: bool,
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    /// False for a member of the workspace.
    pub(crate) external: bool,
    pub(crate) folder: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

impl Metadata {
    /// Reads the metadata of the workspace, whose lock file must be up to date.
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let mut command = steps::cargo();
        command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root);
        Self::parse(&steps::output(&mut command)?)
    }

    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| format!("cargo metadata: {error}"))?;
        let packages = list(&value, "packages")?.iter().map(package).collect::<Result<_, _>>()?;
        Ok(Self { packages })
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !package.external)
    }

    pub(crate) fn external(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.external)
    }
}

fn package(value: &Value) -> Result<Package, String> {
    let manifest = PathBuf::from(text(value, "manifest_path")?);
    Ok(Package {
        name: text(value, "name")?,
        version: text(value, "version")?,
        licence: value["license"].as_str().map(str::to_owned),
        external: !value["source"].is_null(),
        folder: manifest.parent().unwrap_or(Path::new("")).to_path_buf(),
        dependencies: list(value, "dependencies")?.iter().map(dependency).collect::<Result<_, _>>()?,
    })
}

fn dependency(value: &Value) -> Result<Dependency, String> {
    let kind = match value["kind"].as_str() {
        None => Kind::Normal,
        Some("build") => Kind::Build,
        Some("dev") => Kind::Dev,
        Some(other) => {
            return Err(format!("cargo metadata: dependency kind `{other}` is unknown"));
        }
    };
    Ok(Dependency { name: text(value, "name")?, kind, external: !value["source"].is_null() })
}

fn text(value: &Value, key: &str) -> Result<String, String> {
    value[key].as_str().map(str::to_owned).ok_or_else(|| format!("cargo metadata: no text `{key}`"))
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v Vec<Value>, String> {
    value[key].as_array().ok_or_else(|| format!("cargo metadata: no list `{key}`"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn member(name: &str, folder: &str, edges: &[(&str, Kind, bool)]) -> Package {
        let dependencies =
            edges.iter().map(|&(name, kind, external)| Dependency { name: name.into(), kind, external }).collect();
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            licence: None,
            external: false,
            folder: PathBuf::from(folder),
            dependencies,
        }
    }

    pub(crate) fn registry(name: &str, licence: Option<&str>) -> Package {
        Package { licence: licence.map(str::to_owned), external: true, ..member(name, "/registry", &[]) }
    }

    #[test]
    fn the_fields_are_read() {
        let json = r#"{"packages":[
            {"name":"own","version":"1.0.0","license":null,"source":null,"manifest_path":"/w/crates/own/Cargo.toml",
             "dependencies":[{"name":"libc","kind":null,"source":"registry+x"},{"name":"idl","kind":"build","source":null}]},
            {"name":"libc","version":"0.2.1","license":"MIT OR Apache-2.0","source":"registry+x",
             "manifest_path":"/r/libc/Cargo.toml","dependencies":[]}]}"#;
        let metadata = Metadata::parse(json).unwrap();
        let own = metadata.members().next().unwrap();
        assert_eq!((own.name.as_str(), own.folder.as_path()), ("own", Path::new("/w/crates/own")));
        assert!(own.dependencies[0].external && own.dependencies[0].kind == Kind::Normal);
        assert!(!own.dependencies[1].external && own.dependencies[1].kind == Kind::Build);
        let libc = metadata.external().next().unwrap();
        assert_eq!(libc.licence.as_deref(), Some("MIT OR Apache-2.0"));
    }

    #[test]
    fn a_document_of_another_shape_is_refused() {
        assert!(Metadata::parse("{}").is_err());
        assert!(Metadata::parse("not json").is_err());
    }
}
