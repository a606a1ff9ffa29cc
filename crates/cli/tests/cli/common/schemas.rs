//! The schemas in `docs/json`, with which all objects that the program prints are compared.

use crate::prelude::*;

/// What kinds of objects there are.
const KINDS: [&str; 4] = ["report", "failure", "progress", "shared-report"];

pub struct Schemas {
    schemas: [Schema; 4],
    seen: Mutex<BTreeSet<String>>,
}

impl Schemas {
    pub fn read() -> Self {
        let read = |name| {
            let path = format!("{}/../../docs/json/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
            Schema(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        };
        Self { schemas: KINDS.map(read), seen: Mutex::default() }
    }

    /// Checks an object that the program has printed.
    pub fn check(&self, object: &Value) {
        let kind = match object {
            _ if object.get("event").is_some() => 2,
            _ if object.get("program").is_some() => 3,
            _ if object["error"].is_object() => 1,
            _ => 0,
        };
        self.schemas[kind].check(object);
        if kind == 0 {
            self.seen.lock().unwrap().insert(object["command"].as_str().unwrap().to_owned());
        }
    }

    /// The names of all commands that have a report.
    pub fn commands(&self) -> BTreeSet<String> {
        let reports = self.schemas[0].0["oneOf"].as_array().unwrap().iter();
        reports.map(|report| report["properties"]["command"]["const"].as_str().unwrap().to_owned()).collect()
    }

    /// The names of the commands whose reports were checked.
    pub fn seen(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// A schema as `schemars` generates it.
struct Schema(Value);

impl Schema {
    fn check(&self, value: &Value) {
        let mut known = Vec::new();
        self.matches(&self.0, value, &mut known).unwrap_or_else(|error| panic!("{error}: {value}"));
        // What no part of the schema describes was added without it.
        let unknown = value.as_object().unwrap().keys().find(|name| !known.contains(name));
        assert_eq!(unknown, None, "{value}");
    }

    /// Checks a value against a part of the schema; adds the fields that this describes to `known`.
    fn matches<'a>(
        &'a self,
        part: &'a Value,
        value: &Value,
        known: &mut Vec<&'a String>,
    ) -> Result<(), String> {
        let Some(part) = part.as_object() else { return Ok(()) };
        for (keyword, rule) in part {
            let list = || rule.as_array().into_iter().flatten();
            let is_right = match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
                    self.matches(&self.0["$defs"][name], value, known)?;
                    true
                }
                "type" if rule.is_array() => list().any(|name| is_of_type(name, value)),
                "type" => is_of_type(rule, value),
                "const" => rule == value,
                "enum" => list().any(|one| one == value),
                "required" => list().all(|name| value.get(name.as_str().unwrap()).is_some()),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
                "anyOf" | "oneOf" => list().any(|one| {
                    let mut found = Vec::new();
                    let is_right = self.matches(one, value, &mut found).is_ok();
                    known.extend(found.into_iter().filter(|_| is_right));
                    is_right
                }),
                "properties" => {
                    for (name, property) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.matches(property, value, &mut Vec::new())
                                .map_err(|error| format!("{name}: {error}"))?;
                        }
                        known.push(name);
                    }
                    true
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.matches(rule, item, &mut Vec::new())?;
                    }
                    true
                }
                "$schema" | "$defs" | "title" | "description" | "format" => true,
                other => return Err(format!("this test does not know the keyword {other}")),
            };
            if !is_right {
                return Err(format!("{keyword} {rule} does not match {value}"));
            }
        }
        Ok(())
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}
