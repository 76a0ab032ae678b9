//! Permitted dependencies between crates, as in the table of layers in ARCHITECTURE.md.
//!
//! Packages outside `crates/` may depend on every layer, and no layer may depend on them.

use std::path::Path;

use crate::metadata::{Kind, Metadata, Package};

struct Layer {
    folder: &'static str,
    below: &'static [&'static str],
    generates: bool,
}

const LAYERS: &[Layer] = &[
    Layer { folder: "wire", below: &[], generates: false },
    Layer { folder: "sched", below: &[], generates: false },
    Layer { folder: "idl", below: &[], generates: false },
    Layer { folder: "sys", below: &[], generates: false },
    Layer { folder: "sniff", below: &["wire"], generates: false },
    Layer { folder: "net", below: &["sys"], generates: false },
    Layer { folder: "rio", below: &["net", "sys", "sched"], generates: false },
    Layer { folder: "orb", below: &["net", "wire", "sys", "sched"], generates: false },
    Layer { folder: "config", below: &["orb", "net", "wire"], generates: false },
    Layer { folder: "services", below: &["orb", "wire", "sys", "sched"], generates: true },
    Layer { folder: "bench", below: &["orb", "services", "net", "rio", "sys", "wire"], generates: true },
    Layer {
        folder: "cli",
        below: &["wire", "sched", "idl", "sys", "net", "rio", "orb", "config", "services", "bench", "sniff"],
        generates: true,
    },
];

pub(crate) fn check(metadata: &Metadata, root: &Path) -> Vec<String> {
    let members: Vec<&Package> = metadata.members().collect();
    let mut found = Vec::new();
    for package in &members {
        let Some(from) = layer_folder(package, root) else {
            continue;
        };
        let Some(layer) = LAYERS.iter().find(|layer| layer.folder == from) else {
            found.push(format!(
                "crates/{from} is not in the table of layers: add it to ARCHITECTURE.md and to xtask/src/layers.rs"
            ));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.external) {
            let Some(target) = members.iter().find(|member| member.name == dependency.name) else {
                continue;
            };
            let to = layer_folder(target, root);
            if !allowed(layer, to, dependency.kind) {
                found.push(format!(
                    "crates/{from}/Cargo.toml: [{}] has `{}`, an edge that the table of layers does not allow{}",
                    dependency.kind.section(),
                    dependency.name,
                    permitted(layer),
                ));
            }
        }
    }
    found
}

fn allowed(layer: &Layer, to: Option<&str>, kind: Kind) -> bool {
    match (to, kind) {
        (None, _) => false,
        (Some("idl"), Kind::Build | Kind::Dev) if layer.generates => true,
        // A crate may depend on itself, to enable features for its tests.
        (Some(to), Kind::Dev) if to == layer.folder => true,
        (Some(to), _) => layer.below.contains(&to),
    }
}

fn permitted(layer: &Layer) -> String {
    if layer.below.is_empty() {
        return " (it may depend on no other layer)".into();
    }
    format!(" (allowed: {})", layer.below.join(", "))
}

fn layer_folder<'p>(package: &'p Package, root: &Path) -> Option<&'p str> {
    let inside = package.folder.strip_prefix(root.join("crates")).ok()?;
    inside.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::member;

    fn findings(packages: Vec<Package>) -> Vec<String> {
        check(&Metadata { packages }, Path::new("/w"))
    }

    #[test]
    fn the_workspace_passes() {
        let packages = vec![
            member("corelane-sys", "/w/crates/sys", &[("libc", Kind::Normal, true)]),
            member("corelane-wire", "/w/crates/wire", &[]),
            member("corelane-idl", "/w/crates/idl", &[]),
            member("corelane-net", "/w/crates/net", &[("corelane-sys", Kind::Normal, false)]),
            member(
                "corelane",
                "/w/crates/orb",
                &[("corelane-net", Kind::Normal, false), ("corelane-wire", Kind::Normal, false)],
            ),
            member("corelane-bench", "/w/crates/bench", &[("corelane-idl", Kind::Build, false)]),
            member("interop", "/w/interop", &[("corelane-idl", Kind::Build, false)]),
        ];
        assert_eq!(findings(packages), Vec::<String>::new());
    }

    #[test]
    fn an_upward_edge_is_refused_in_every_section() {
        for kind in [Kind::Normal, Kind::Build, Kind::Dev] {
            let packages = vec![
                member("corelane-sys", "/w/crates/sys", &[("corelane-net", kind, false)]),
                member("corelane-net", "/w/crates/net", &[]),
            ];
            let found = findings(packages);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("crates/sys") && found[0].contains("corelane-net"), "{found:?}");
            assert!(found[0].contains(kind.section()), "{found:?}");
        }
    }

    #[test]
    fn the_compiler_is_no_run_time_dependency() {
        let with = |kind| {
            findings(vec![
                member("corelane-bench", "/w/crates/bench", &[("corelane-idl", kind, false)]),
                member("corelane-idl", "/w/crates/idl", &[]),
            ])
        };
        assert_eq!(with(Kind::Normal).len(), 1);
        assert!(with(Kind::Build).is_empty());
    }

    #[test]
    fn a_layer_may_not_depend_on_a_user() {
        let found = findings(vec![
            member("corelane", "/w/crates/orb", &[("interop", Kind::Dev, false)]),
            member("interop", "/w/interop", &[]),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn crate_that_the_table_lacks_is_named() {
        let found = findings(vec![member("corelane-extra", "/w/crates/extra", &[])]);
        assert!(found[0].contains("crates/extra is not in the table of layers"), "{found:?}");
    }
}
