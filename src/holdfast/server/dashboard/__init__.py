"""The dashboard: pages for operators, rendered on the server, readable and operable without JavaScript.

```text
   read/        the app's verbs → frozen values, one module per page, a bounded number of statements each
   templates/   values → HTML (Jinja2, autoescaped)
   static/      one stylesheet, one sheet of icons, one ES module for live updates and keys
   actions      forms → the app's verbs, with the role that each needs, recorded in the audit log
   live         one loop that renders what open tabs show, and sends the parts that have changed
```
"""
