//! `cargo xtask check`: the checks that need no test run.

use std::fs;

use crate::metadata::Metadata;
use crate::steps::{self, Steps};
use crate::{cross, dependencies, host, layers, licences, modules, source};

pub(crate) fn run(steps: &mut Steps) {
    if !steps.step("Rust components", host::components) {
        return;
    }
    steps.command("formatting", steps::cargo().args(["fmt", "--all", "--check"]));
    steps.step("names of types", |root| {
        let (found, remark) = modules::type_names(root)?;
        steps::findings(found, remark)
    });
    steps.step("source rules", |root| {
        let (found, files) = source::check(root)?;
        steps::findings(found, format!("{files} files"))
    });
    graph(steps);
    structure(steps);
    let deny = ["--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    steps.command("clippy", steps::cargo().arg("clippy").args(deny));
    let bare = ["-p", "corelane", "--no-default-features", "--locked", "--quiet", "--", "-D", "warnings"];
    steps.command("clippy without features", steps::cargo().arg("clippy").args(bare));
    cross::where_installed(steps);
    let documentation = ["doc", "--workspace", "--no-deps", "--locked", "--quiet"];
    steps.command("rustdoc", steps::cargo().args(documentation).env("RUSTDOCFLAGS", "-D warnings"));
}

pub(crate) fn structure(steps: &mut Steps) {
    steps.step("layers inside the ORB", |root| {
        let (found, remark) = modules::orb_layers(root)?;
        steps::findings(found, remark)
    });
    steps.step("circles of files", |root| {
        let (found, remark) = modules::circles(root)?;
        steps::findings(found, remark)
    });
}

fn graph(steps: &mut Steps) {
    let mut metadata = None;
    steps.step("package graph", |root| {
        let read = Metadata::load(root)?;
        let remark = format!("{} packages, {} of the workspace", read.packages.len(), read.members().count());
        metadata = Some(read);
        Ok(remark)
    });
    let Some(metadata) = metadata else { return };
    steps.step("dependency direction", |root| steps::findings(layers::check(&metadata, root), String::new()));
    steps.step("licences", |_| steps::findings(licences::check(&metadata), String::new()));
    steps.step("dependency reasons", |root| {
        let document = root.join(dependencies::DOCUMENT);
        let text = fs::read_to_string(&document).map_err(|error| format!("{}: {error}", dependencies::DOCUMENT))?;
        steps::findings(dependencies::check(&metadata, &text), String::new())
    });
}
