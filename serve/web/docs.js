// The OpenAPI page: every request of it can be sent from here.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#documentation",
  deepLinking: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
});
