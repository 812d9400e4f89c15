// The form for the token, if the server requires one.

import * as api from "./api.js";
import { html } from "./dom.js";

export function signIn({ run, signedIn }) {
  const token = html("input", { id: "token", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "token-help" });
  const button = html("button", { class: "main" }, "Sign in");
  const submit = (event) => {
    event.preventDefault();
    run(button, async () => {
      await api.login(token.value);
      signedIn();
    });
  };
  const node = html("form", { class: "narrow", submit },
    html("h1", {}, "Sign in"),
    html("p", { class: "field" },
      html("label", { for: "token" }, "Token"),
      token,
      html("small", { id: "token-help" }, "The server was started with a token file. Ask the operator of the server for the token. The browser keeps a cookie, not the token.")),
    button);
  return { title: "Sign in", node };
}
