//! How long functions may be, how many fields structs may have, and that no public function takes a tuple.

use crate::workspace;
use syn::{
    Block, Expr, FnArg, ImplItemFn, ItemFn, ItemMod, ItemStruct, Signature, Stmt, Type, Visibility,
    visit::{self, Visit},
};

/// Maximum number of lines of a function, with its signature, unless all that it does is to look something
/// up with `match`: that is a table.
const MAX_FUNCTION_LINES: usize = 70;
/// Maximum number of fields of a struct, unless it is a list of facts for a user.
const MAX_FIELDS: usize = 15;
/// How the names of structs end that are lists of facts for a user. [`ChainParams`](rules::ChainParams) are
/// those of Core, and `BlockStats` those of an RPC.
const LISTS: [&str; 5] = ["Options", "Args", "Report", "ChainParams", "BlockStats"];

/// What exceeds the caps in one file.
struct Excesses<'a> {
    file: &'a str,
    found: Vec<String>,
}

impl Excesses<'_> {
    fn function(&mut self, signature: &Signature, block: &Block, is_public: bool) {
        let lines = block.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        let (file, name) = (self.file, &signature.ident);
        let is_table = matches!(&block.stmts[..], [Stmt::Expr(Expr::Match(_), None)]);
        if lines > MAX_FUNCTION_LINES && !is_table {
            self.found.push(format!("{file}: fn {name} is too long"));
        }
        let is_tuple = |input: &FnArg| match input {
            FnArg::Typed(typed) => matches!(&*typed.ty, Type::Tuple(_)),
            FnArg::Receiver(_) => false,
        };
        if is_public && signature.inputs.iter().any(is_tuple) {
            self.found.push(format!("{file}: pub fn {name} takes a tuple"));
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

impl<'ast> Visit<'ast> for Excesses<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("test")) {
            self.function(&item.sig, &item.block, is_public(&item.vis));
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block, is_public(&item.vis));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let (fields, name) = (item.fields.len(), item.ident.to_string());
        if fields > MAX_FIELDS && !LISTS.iter().any(|list| name.ends_with(list)) {
            self.found.push(format!("{}: struct {name} is too wide", self.file));
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn functions_and_structs_are_small() {
    let mut all = Vec::new();
    for (path, text) in workspace::sources() {
        let file = path.display().to_string();
        if file.contains("/tests")
            || file.starts_with("crates/acceptance")
            || file.starts_with("lab/bench/benches")
        {
            continue;
        }
        let mut excesses = Excesses { file: &file, found: Vec::new() };
        excesses.visit_file(&syn::parse_file(text).unwrap());
        all.extend(excesses.found);
    }
    assert!(all.is_empty(), "{MAX_FUNCTION_LINES} lines, {MAX_FIELDS} fields, no tuples: {all:#?}");
}
