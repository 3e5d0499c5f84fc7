//! Imports inside a crate: each folder below `src` is a layer, and layers import in one direction.
//!
//! A file belongs to the folder below `src` that contains it, or that it is the root file of
//! (`src/fill.rs` and `src/fill/store.rs` belong to `fill`). An import is a path that starts with
//! `crate`, `super` or `self`, or a `use` of a child module. Tests are not counted.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Meta, UseTree};

/// Crates that are checked. In the engine, a folder may import [`ENGINE_FOLDERS_MAX`] others.
const LAYERED: &[&str] = &[
    "forebay-engine",
    "forebay",
    "forebay-cli",
    "forebay-disk",
    "forebay-http",
    "forebay-redis",
    "forebay-semantics",
];

/// Crates whose files may form cycles inside a folder.
const CYCLES_INSIDE: &[&str] = &["forebay-http"];

/// Maximum number of folders that one folder of the engine imports.
const ENGINE_FOLDERS_MAX: usize = 5;

/// Path of a module, from the crate root.
type Module = Vec<String>;
type Graph<T> = BTreeMap<T, BTreeSet<T>>;

/// Returns the imports that break the rules, for each crate of [`LAYERED`].
pub(crate) fn findings(files: &[(String, String)]) -> Vec<String> {
    let of = |name: &&str| crate_findings(&format!("crates/{name}/src/"), files);
    LAYERED.iter().flat_map(of).collect()
}

fn crate_findings(source: &str, files: &[(String, String)]) -> Vec<String> {
    let parsed = files.iter().filter_map(|(path, text)| {
        let inner = path.strip_prefix(source)?.strip_suffix(".rs")?;
        Some((module_of(inner), syn::parse_file(text).ok()?))
    });
    let parsed: BTreeMap<Module, syn::File> = parsed.collect();
    let tests: BTreeSet<Module> =
        parsed.iter().flat_map(|(module, file)| test_modules(module, file)).collect();
    let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
    let modules: BTreeSet<Module> =
        parsed.keys().filter(|module| !is_test(module)).cloned().collect();
    let mut graph: Graph<Module> = BTreeMap::new();
    for module in &modules {
        let mut imports =
            Imports { modules: &modules, current: module.clone(), found: BTreeSet::new() };
        imports.visit_file(&parsed[module]);
        imports.found.remove(module);
        graph.insert(module.clone(), imports.found);
    }
    let mut findings = folder_findings(source, &graph);
    let may_have_cycles = CYCLES_INSIDE.iter().any(|name| source.contains(&format!("/{name}/")));
    if !may_have_cycles {
        findings.extend(file_findings(source, &graph));
    }
    findings
}

/// Cycles between folders, imports of the crate root, and folders that import too many others.
fn folder_findings(source: &str, graph: &Graph<Module>) -> Vec<String> {
    let folder = |module: &Module| module.first().cloned().unwrap_or_default();
    let mut folders: Graph<String> = BTreeMap::new();
    for (module, imports) in graph {
        let imports = imports.iter().map(folder).filter(|import| *import != folder(module));
        folders.entry(folder(module)).or_default().extend(imports);
    }
    let is_engine = source == "crates/forebay-engine/src/";
    let mut findings = Vec::new();
    for (name, imports) in folders.iter().filter(|(name, _)| !name.is_empty()) {
        if imports.contains("") {
            findings.push(format!("{source}{name}: imports the crate root: name the folder"));
        }
        if is_engine && imports.len() > ENGINE_FOLDERS_MAX {
            findings.push(format!(
                "{source}{name}: imports {} folders, at most {ENGINE_FOLDERS_MAX}: {imports:?}",
                imports.len()
            ));
        }
        if reaches(&folders, name, name) {
            let through = imports.iter().filter(|import| reaches(&folders, import, name));
            let through: Vec<_> = through.collect();
            findings.push(format!("{source}{name}: in a cycle of folders, through {through:?}"));
        }
    }
    findings
}

/// Cycles between files of one folder, except between a module and its own children.
fn file_findings(source: &str, graph: &Graph<Module>) -> Vec<String> {
    let mut findings = Vec::new();
    for module in graph.keys() {
        let cycle: Vec<&Module> = graph
            .keys()
            .filter(|other| reaches(graph, module, other) && reaches(graph, other, module))
            .collect();
        let parent = cycle.iter().min_by_key(|module| module.len());
        let is_allowed = parent.is_none_or(|parent| {
            cycle.iter().all(|module| module == parent || module[..module.len() - 1] == parent[..])
        });
        if !is_allowed && parent.is_some_and(|parent| *parent == module) {
            let names: Vec<_> = cycle.iter().map(|module| module.join("/")).collect();
            findings.push(format!("{source}: cycle of files: {}", names.join(", ")));
        }
    }
    findings
}

fn reaches<T: Ord + Clone>(graph: &Graph<T>, from: &T, to: &T) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for import in graph.get(next).into_iter().flatten() {
            if import == to {
                return true;
            }
            if seen.insert(import) {
                open.push(import);
            }
        }
    }
    false
}

fn module_of(path: &str) -> Module {
    let parts = path.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod"));
    parts.map(str::to_owned).collect()
}

/// Modules in other files that are compiled for tests only.
fn test_modules(module: &Module, file: &syn::File) -> Vec<Module> {
    let declared = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(declared) if is_for_tests(&declared.attrs) => Some(&declared.ident),
        _ => None,
    });
    declared.map(|name| [&module[..], &[name.to_string()]].concat()).collect()
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg") && !words.contains("not") && words.contains("test")
    })
}

/// Collects the modules that one file imports.
struct Imports<'a> {
    modules: &'a BTreeSet<Module>,
    current: Module,
    found: BTreeSet<Module>,
}

impl Imports<'_> {
    fn add(&mut self, path: &[String]) {
        let mut target = self.current.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => target.clear(),
            Some("super") => {}
            Some("self") => rest = &path[1..],
            // A child module, or else another crate.
            Some(name) => {
                target.push(name.to_owned());
                if !self.modules.contains(&target) {
                    return;
                }
                target.pop();
            }
            None => return,
        }
        if path[0] == "crate" {
            rest = &path[1..];
        }
        for name in rest {
            if name == "super" {
                target.pop();
                continue;
            }
            target.push(name.clone());
            if !self.modules.contains(&target) {
                target.pop();
                break;
            }
        }
        while !self.modules.contains(&target) && target.pop().is_some() {}
        self.found.insert(target);
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.add(&with(name.ident.to_string())),
            UseTree::Rename(rename) => self.add(&with(rename.ident.to_string())),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() && !is_for_tests(&item.attrs) {
            self.current.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.current.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if names.len() > 1 && matches!(&*names[0], "crate" | "super" | "self") {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}
