//! What a Python source says about itself before it is pulled: name, version and schema.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple, PyType};

use super::mapping::as_dict;
use crate::format::names::check_source_name;
use crate::format::payload::{Dtype, FieldSpec, PayloadSchema};
use crate::format::schema::{ColumnSpec, Kind, Schema};

/// A usable source.
pub struct Source<'py> {
    /// Name of the source and of its cache.
    pub name: String,
    /// Yields the samples.
    pub object: Bound<'py, PyAny>,
    /// Version to be stored and compared.
    pub version: Option<String>,
    /// Declared metadata columns.
    pub schema: Option<Schema>,
    /// Declared payload fields.
    pub payload: Option<PayloadSchema>,
    /// Which columns of its tables are payload fields, if it says so.
    pub payload_columns: Option<Vec<String>>,
}

/// A source that cannot be used: what to call it, and why.
pub struct BadSource {
    /// Its name, or `source[<position>]` if it has none that could be shown.
    pub label: String,
    /// The reason.
    pub fault: String,
}

impl<'py> Source<'py> {
    /// Looks at source number `position`.
    ///
    /// # Errors
    /// Outside: an exception that is nobody's to catch, such as `KeyboardInterrupt`. Inside: what is wrong with the source.
    pub fn inspect(
        position: usize,
        object: Bound<'py, PyAny>,
    ) -> PyResult<Result<Self, BadSource>> {
        let mut label = format!("source[{position}]");
        match Self::read(&mut label, object) {
            Ok(source) => Ok(Ok(source)),
            Err(Fault::Found(fault)) => Ok(Err(BadSource { label, fault })),
            Err(Fault::Raised(what, exception, py)) => {
                let text = describe(py, exception)?;
                let fault = format!("{what}: {text}");
                Ok(Err(BadSource { label, fault }))
            }
        }
    }

    fn read(label: &mut String, object: Bound<'py, PyAny>) -> Result<Self, Fault<'py>> {
        let py = object.py();
        let raised = |what| move |exception| Fault::Raised(what, exception, py);
        let class = type_name(&object);
        let name = object
            .getattr_opt(intern!(py, "name"))
            .map_err(raised("its name cannot be read"))?;
        let Some(name) = name else {
            return Err(Fault::Found(format!(
                "an object of type {class} without the attribute `name`"
            )));
        };
        let Ok(name) = name.cast::<PyString>() else {
            let found = type_name(&name);
            return Err(Fault::Found(format!(
                "its name is of type {found}, expected str"
            )));
        };
        let name = name.to_str().map_err(raised("its name cannot be read"))?;
        name.clone_into(label);
        check_source_name(name).map_err(|error| Fault::Found(error.to_string()))?;
        if !object
            .hasattr(intern!(py, "__iter__"))
            .map_err(raised("it cannot be looked at"))?
        {
            return Err(Fault::Found(format!(
                "an object of type {class} without the method `__iter__`"
            )));
        }
        let version =
            attribute(&object, "version").map_err(raised("its version cannot be read"))?;
        let schema = attribute(&object, "schema").map_err(raised("its schema cannot be read"))?;
        let payload = attribute(&object, "payload_schema")
            .map_err(raised("its payload_schema cannot be read"))?;
        let payload_columns = attribute(&object, "payload_columns")
            .map_err(raised("its payload_columns cannot be read"))?;
        let payload_columns = payload_columns.map(|names| match names.extract() {
            Ok(found) if !names.is_instance_of::<PyString>() => Ok(found),
            Err(exception) if !PyErr::is_instance_of::<PyException>(&exception, py) => {
                Err(raised("its payload_columns cannot be read")(exception))
            }
            _ => Err(Fault::Found(format!(
                "its payload_columns is of type {}, expected a list of column names",
                type_name(&names)
            ))),
        });
        Ok(Self {
            name: name.to_owned(),
            version: version.map(|value| version_text(&value)).transpose()?,
            schema: schema.map(|value| declared(&value)).transpose()?,
            payload: payload.map(|value| declared_fields(&value)).transpose()?,
            payload_columns: payload_columns.transpose()?,
            object,
        })
    }
}

enum Fault<'py> {
    Found(String),
    Raised(&'static str, PyErr, Python<'py>),
}

/// An optional attribute. A method of that name, which frameworks give their classes, is not meant for us.
fn attribute<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = object.getattr_opt(name)?;
    Ok(found.filter(|value| !value.is_none() && !value.is_callable()))
}

fn version_text<'py>(value: &Bound<'py, PyAny>) -> Result<String, Fault<'py>> {
    let is_number = value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>();
    if !is_number && !value.is_instance_of::<PyString>() {
        return Err(Fault::Found(format!(
            "its version is of type {}, expected str or int",
            type_name(value)
        )));
    }
    let read = value.str().and_then(|text| Ok(text.to_str()?.to_owned()));
    read.map_err(|exception| Fault::Raised("its version cannot be read", exception, value.py()))
}

fn declared_fields<'py>(value: &Bound<'py, PyAny>) -> Result<PayloadSchema, Fault<'py>> {
    let py = value.py();
    let raised = |exception| Fault::Raised("its payload_schema cannot be read", exception, py);
    let Some(mapping) = as_dict(value).map_err(raised)? else {
        return Err(Fault::Found(format!(
            "its payload_schema is of type {}, expected a mapping from field name to (dtype, shape)",
            type_name(value)
        )));
    };
    let module = py.import("dataset_rt.fields").map_err(raised)?;
    let refused = module.getattr("RefusedError").map_err(raised)?;
    let mut fields = Vec::new();
    for item in mapping.items().iter() {
        let (name, field): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            item.extract().map_err(raised)?;
        let Ok(name) = name.cast::<PyString>() else {
            return Err(Fault::Found(format!(
                "its payload_schema has a field name of type {}, expected str",
                type_name(&name)
            )));
        };
        let name = name.to_str().map_err(raised)?.to_owned();
        let read = module.call_method1("declared", (field,));
        let (dtype, shape): (String, Vec<Option<u64>>) = match read {
            Ok(read) => read.extract().map_err(raised)?,
            Err(exception) if exception.is_instance(py, &refused) => {
                let found = exception.value(py);
                return Err(Fault::Found(format!(
                    "its payload_schema declares field `{name}` as {found}"
                )));
            }
            Err(exception) => return Err(raised(exception)),
        };
        let Some(dtype) = Dtype::from_name(&dtype) else {
            return Err(Fault::Found(format!(
                "its payload_schema declares field `{name}` as dtype {dtype}, which is not stored; view it as uint8"
            )));
        };
        fields.push(FieldSpec { name, dtype, shape });
    }
    PayloadSchema::new(fields)
        .map_err(|fault| Fault::Found(format!("its payload_schema has {fault}")))
}

fn declared<'py>(value: &Bound<'py, PyAny>) -> Result<Schema, Fault<'py>> {
    let raised = |exception| Fault::Raised("its schema cannot be read", exception, value.py());
    let Some(mapping) = as_dict(value).map_err(raised)? else {
        return Err(Fault::Found(format!(
            "its schema is of type {}, expected a mapping from column name to type",
            type_name(value)
        )));
    };
    let mut columns = Vec::new();
    for item in mapping.items().iter() {
        let (name, kind): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            item.extract().map_err(raised)?;
        let Ok(name) = name.cast::<PyString>() else {
            return Err(Fault::Found(format!(
                "its schema has a column name of type {}, expected str",
                type_name(&name)
            )));
        };
        let name = name.to_str().map_err(raised)?.to_owned();
        let Some((kind, nullable)) = column_type(&kind).map_err(raised)? else {
            let found = kind.repr().map_err(raised)?;
            return Err(Fault::Found(format!(
                "its schema declares column `{name}` as {found}, expected bool, int, float or str, or one of them | None"
            )));
        };
        columns.push(ColumnSpec {
            name,
            kind,
            nullable,
        });
    }
    Schema::new(columns).map_err(|fault| Fault::Found(format!("its schema has {fault}")))
}

/// A declared type: a class, its name, or either `| None`.
fn column_type(declared: &Bound<'_, PyAny>) -> PyResult<Option<(Kind, bool)>> {
    if let Ok(text) = declared.cast::<PyString>() {
        let text = text.to_str()?;
        let (none, names): (Vec<&str>, Vec<&str>) = text
            .split('|')
            .map(str::trim)
            .partition(|part| *part == "None");
        return Ok(match names.as_slice() {
            [name] => kind_named(name).map(|kind| (kind, !none.is_empty())),
            _ => None,
        });
    }
    if let Ok(class) = declared.cast::<PyType>() {
        return Ok(kind_of_class(class)?.map(|kind| (kind, false)));
    }
    let Some(parts) = declared.getattr_opt("__args__")? else {
        return Ok(None);
    };
    let Ok(parts) = parts.cast_into::<PyTuple>() else {
        return Ok(None);
    };
    let (mut kind, mut nullable) = (None, false);
    for part in parts.iter() {
        match part.cast::<PyType>() {
            Ok(class) if class.is(declared.py().None().bind(declared.py()).get_type()) => {
                nullable = true;
            }
            Ok(class) if kind.is_none() => kind = kind_of_class(class)?,
            _ => return Ok(None),
        }
    }
    Ok(kind.filter(|_| nullable).map(|kind| (kind, true)))
}

fn kind_of_class(class: &Bound<'_, PyType>) -> PyResult<Option<Kind>> {
    let is_builtin = class.module()?.to_str()? == "builtins";
    let name = class.name()?;
    Ok(kind_named(name.to_str()?).filter(|_| is_builtin))
}

fn kind_named(name: &str) -> Option<Kind> {
    match name {
        "bool" => Some(Kind::Bool),
        "int" => Some(Kind::Int),
        "float" => Some(Kind::Float),
        "str" | "string" => Some(Kind::String),
        _ => None,
    }
}

/// Name of an object's type, for messages.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string())
}

/// An exception as `<type>: <text>`. One that is no `Exception`, such as `KeyboardInterrupt`, is given back as an error.
pub fn describe(py: Python<'_>, exception: PyErr) -> PyResult<String> {
    if !exception.is_instance_of::<PyException>(py) {
        return Err(exception);
    }
    let class = exception.get_type(py).qualname();
    let class = class.map_or_else(|_| "exception".to_owned(), |name| name.to_string());
    let text = exception.value(py).str();
    let text = text.map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    );
    Ok(match text.is_empty() {
        true => class,
        false => format!("{class}: {text}"),
    })
}
