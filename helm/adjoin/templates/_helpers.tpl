{{- define "adjoin.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "adjoin.serviceAccount" -}}
{{- default (include "adjoin.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* The user name under which the operator's requests arrive; the admission policies let nobody else write what is Adjoin's. */ -}}
{{- define "adjoin.username" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "adjoin.serviceAccount" .) -}}
{{- end -}}

{{- define "adjoin.selector" -}}
app.kubernetes.io/name: adjoin
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "adjoin.labels" -}}
{{ include "adjoin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* clientConfig of a webhook; the operator itself fills in caBundle. */ -}}
{{- define "adjoin.clientConfig" -}}
{{- if .root.Values.webhook.url -}}
url: {{ printf "%s%s" .root.Values.webhook.url .path | quote }}
{{- else -}}
service:
  name: {{ include "adjoin.fullname" .root }}-webhook
  namespace: {{ .root.Release.Namespace }}
  path: {{ .path }}
  port: 443
{{- end -}}
{{- end -}}
